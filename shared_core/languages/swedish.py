"""Swedish."""

from shared_core.languages.language import Language

SWEDISH = Language(
    code="sv",
    stemmer="swedish",
    stop_words="""
    alla allt alltid andra att av bara blev bli blir da dar de deg dem den denna deras dess dessa det detta dig din dina
    ditt du efter ej eller en ens er era ert ett fick fler for fore fran full genom gor gora ha hade han hans har hennes
    henne hon honom hur har i icke igen in ingen inget inom inte ja jag ju kan kanske kom kunde man med mellan men mer
    mig min mina mitt mot mycket maste na nagon nagot nagra naa nar nej ni nu och ocksa om oss over pa redan samma sedan
    sig sin sina sitt ska skall skulle som sa tack till under upp ut utan vad val var vara varfor varit varje vars vart
    vem vet vi vid vilka vilken vilket vill var vara ar ok
    """,
    signs="""
    alla alltid andra att bara blev blir dem denna dessa det detta dig dina ditt efter eller ett fran genom gora hade
    hennes hej hon honom hur igen ingen inget inte jag kanske kunde maste med mellan mig mina mitt mycket nagon nagot
    nagra nej nu och ocksa oss pa redan sedan sitt ska skulle som tack till utan vad vara varfor varit vem vilka vilken
    vilket ar idag imorgon igar
    """,
    small_talk="""
    absolut aj alltsa ange antagligen ata bast battre bra dag dagen dalig det duktig dumt egentligen exakt fantastisk
    fantastiskt fin fint fina fredag forlat forstar forstas forhoppningsvis ganska glad god gott gratis gratulerar
    grattis gullig ha haha harligt hej hejdå hejda helg helgen hoppas hm hjalp intressant jaha japp jattebra jo ju kanon
    kanske klart klar konstigt kram kul kvall latt ledsen lite ljuvligt lol lugnt lycka morgon natt nja nog nej ok okej
    oj perfekt precis problem puss roligt ratt sant saklart sakert salut skoj skont skratt smart snalla snart snyggt sov
    stammer super synd snall tack tacksam tokigt toppen tror trott trevlig trevligt tjena tusen underbart usch val vanta
    varsagod visst vore wow
    """,
    about_talk="""
    amne beratta berattade beskriv chatt detalj detaljer diskuterade diskutera forklara forklarade fraga fragade fragor
    information kommer lista minns namnde namna ordning pratade prata pratat sa sade sagt samtal samtalet sammanfatta
    sammanfattning svar svara svarade tidigare asikt
    """,
    speaker="jag mig min mina mitt vi oss var vara vart",
    hearer="du dig din dina ditt ni er era ert",
    of_us="jag mig min mina mitt vi oss vara vart",
    questions="vad vem vems nar var vart hur vilken vilket vilka varfor",
    joins="och",
    adds="och men eller sa da hur_ar_det_med",
    points="det den de dem detta denna dessa han hon honom henne hans hennes deras dess dar da sin sitt sina",
    requests="""
    kan skulle vill vad vem nar var vart hur vilken vilket vilka varfor har ar om i for pa lista ge beratta forklara
    beskriv visa hjalp paminn skriv oversatt rakna jamfor definiera stava gor skapa foresla rekommendera hitta sok
    sortera sammanfatta
    """,
    months="""
    januari jan, februari feb, mars, april apr, maj, juni jun, juli jul, augusti aug, september sept sep, oktober okt,
    november nov, december dec
    """,
    day="(?::e|:a|e|a)?",
    near="i sedan till fran forra slutet_av borjan_av mitten_av",
    compounds=True,
)
