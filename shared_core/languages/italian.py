"""Italian."""

from shared_core.languages.language import Language

ITALIAN = Language(
    code="it",
    stemmer="italian",
    stop_words="""
    a abbiamo ad adesso ai al alcune alcuni alla alle allo allora altra altre altri altro anche ancora avere aveva
    avevano avevo avete c che chi ci cio circa come con contro cosa cosi cui d da dagli dai dal dalla dalle dallo dei
    del della delle dello di dopo dove dovere due e ed era erano eravamo eri ero essere fa fare fino fra gia gli grazie
    ha hai hanno ho i il in invece io l la le lei li lo loro lui ma me meno mentre mi mia mie miei mio molta molte molti
    molto ne negli nei nel nella nelle nello noi non nostra nostre nostri nostro o ogni per perche pero piu poco poi
    prima proprio puo puoi qual quale quali qualche quando quanta quante quanti quanto quei quel quella quelle quelli
    quello questa queste questi questo qui se sei sempre senza si sia siamo siete solo sono sopra sotto sta stai stata
    state stati stato su sua sue sugli sui sul sulla sulle sullo suo suoi te ti tra troppo tu tua tue tuo tuoi tutta
    tutte tutti tutto un una uno va vi voi vostra vostro ok
    """,
    signs="""
    abbiamo adesso alcuni alla alle allora anche ancora aveva avevo che chi ciao cosa cosi dai dalla dalle degli dei
    della delle dello dopo dove erano essere gia gli grazie hai hanno ieri invece lei loro mia mie miei mio molto negli
    nel nella nelle noi non nostra nostri nostro oggi ogni perche pero piu poi puo puoi quale quali quando quanto quella
    quello questa queste questi questo sempre senza siamo solo sono stata stato sul sulla suo suoi tra tuo tuoi tutti
    tutto una voi buongiorno domani qual
    """,
    small_talk="""
    accordo aiuto allegria amico anzi apprezzo arrivederci augurio auguri bacio baci bella bello bellissimo bene
    benissimo bene brava bravo bravissimo buon buona buongiorno buonanotte buonasera buono capito capisco cara caro
    carino certo chiaro ciao colpa complimenti contento contenta cosa davvero d'accordo dispiace divertente domani dopo
    dormi eccellente ecco eh esatto esattamente fantastico fatto felice fine finalmente forse forte forza fortuna
    giornata giorno giusto gentile gentilissimo grande grazie ha haha idea immagino importa incredibile infatti
    interessante lol magari magnifico male mattina meglio mille momento nessun niente no notte oggi ok okay ottimo pace
    pazienza penso perfetto piacere piano possibile prego presto problema pronto proprio purtroppo ragione riposa sai
    salute salve saluti scherzo scusa scusi senti sera sembra sicuro sicuramente so spero stanco stanca subito super
    tardi tempo tranquillo triste vabbe va vai vedremo vero veramente via volentieri weekend
    """,
    about_talk="""
    argomento chiacchierato chiesto chiedere chat conversazione descrivi descrivere dettaglio dettagli detto dici dire
    discusso discutere domanda domande elenca elenco informazione informazioni menzionato nominato opinione ordine parla
    parlare parlato raccontato ricorda ricordare ricordi riassumi riassunto risposta risposto rispondere spiega spiegato
    """,
    speaker="io me mi mio mia mie miei noi ci nostr[aoei]",
    hearer="tu te ti tuo tua tue tuoi voi vi vostr[aoei]",
    of_us=r"io me mi mio mia mie miei noi ci nostr[aoei] \w+iamo",
    questions="""
    che chi cosa quale quali qual quando dove come quanto quanta quanti quante perche a_che di_che in_che con_chi
    """,
    joins="e",
    adds="e ma o allora quindi poi che_ne_e_di",
    points=r"""
    esso essa lui lei loro lo(?=\\s) questo questa questi queste quello quella quelli quelle cio li allora suo sua
    """,
    requests="""
    puoi potresti vuoi che chi cosa quale quali qual quando dove come quanto quanta quanti quante perche hai ho ha sono
    e era se in per elenca dammi dimmi spiega spiegami descrivi mostra mostrami aiutami ricordami scrivi traduci
    converti calcola confronta definisci fai crea suggerisci consiglia proponi trova cerca ordina conta riassumi
    """,
    months="""
    gennaio gen, febbraio feb, marzo mar, aprile apr, maggio mag, giugno giu, luglio lug, agosto ago, settembre set
    sett, ottobre ott, novembre nov, dicembre dic
    """,
    day="(?:o)?",
    near="in a da di fino_a scorso inizio meta fine",
    numeric=r"\b(?P<day>\d{1,2})/(?P<month>\d{1,2})(?:/(?P<year>\d{4}))?\b",
)
