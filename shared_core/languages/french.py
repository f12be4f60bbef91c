"""French."""

from shared_core.languages.language import Language

FRENCH = Language(
    code="fr",
    stemmer="french",
    stop_words="""
    a afin ai aie ainsi alors apres as au aucun aucune aupres aussi autre autres aux avaient avais avait avant avec avez
    avoir avons ayant beaucoup bien c car ce ceci cela celle celles celui ces cet cette ceux chaque chez combien comme
    comment d dans de deja depuis des dois doit donc dont du elle elles en encore entre es est et ca etaient etais etait
    etant ete etes etre eu eux fait fais faire faut font fut il ils j je jusqu jusque l la le les leur leurs lorsque lui
    m ma mais me meme memes merci mes moi moins mon n ne ni non nos notre nous on ont ou oui par parce pas pendant peu
    peut peux plus pour pourquoi pouvez puis puisque qu quand que quel quelle quelles quels quelqu quelque quelques qui
    quoi s sa sans sauf se sera serait ses si soi soit sommes son sont sous suis sur ta tandis te tels tes toi ton tous
    tout toute toutes tres trop tu un une avions aviez etions etiez serons seront aura va vais vas vers voici voila vont
    vos votre vous y ok
    """,
    signs="""
    alors aujourd aussi aux avait avec avez avoir avons beaucoup bonjour bonsoir car cela celle celui ces cet cette chez
    combien comme dans deja depuis donc elle elles etaient etait etes etre faire faut hier ils jamais je jusqu leur
    leurs lui mais merci meme mes moi mon nos notre nous ont oui ou parce pendant peut peux pourquoi qu quand quel
    quelle quelles quels quelque qui quoi rien salut sans ses sont sommes suis toi toujours tous tout toute tres trop
    une vais voici voila vos votre vous demain accord soiree
    """,
    endings=(("ee$", "ée"), ("ees$", "ées")),
    small_talk="""
    accord adieu ah aide aime aimable allez aller aujourd hui apres midi bah belle beau bien bientot bisou bisous bon
    bonne bonnes bonjour bonsoir bof bravo ca cava certainement chance chapeau cher chere chouette clair coucou courage
    demain desole desolee dimanche dis dommage drole effectivement enchante enchantee enfin entendu espere exact
    exactement excellent excellente excuse fatigue fatiguee felicitations fin formidable genial grave gentil gentille
    grand grandes ha haha hehe hein heureux heureuse hm hmm idee impeccable incroyable interessant jolie joli jour
    journee lol magnifique maintenant marche mdr mercis merci mieux mille moment nickel nuit ok okay oh ouah ouais ouf
    oui oups parfait parfaite parfaitement pardon passe passez peine plaisir plaisante possible pret prete probleme
    probablement promis quoi raison rire rien rigolo salut sante semaine sens serieux souci super sur surprise surement
    sympa tant tard toujours top tot tranquille triste vrai vraie vraiment voila volontiers vois vive weekend week end
    wow zut compris note comprends pense crois sais vas va ciao ce soir matin peu tiens allons repos dors bien
    """,
    about_talk="""
    aspect chat conversation decris decrire demande demandee demander detail details dire dis dit dite dites discussion
    discuter discute explique expliquer expliquee information informations liste lister mentionne mentionner mentionnee
    opinion ordre parle parler parlee question questions rappelle rappeler rappelles recapitule reponse repondre repondu
    resume resumer souviens souvenir sujet avis evoque evoquer precedemment raconte raconter
    """,
    speaker="je j me m moi mon ma mes mien mienne miens miennes nous notre nos notres?",
    hearer="tu te t toi ton ta tes tien tienne tiens vous votre vos votres?",
    of_us="je j me m moi mon ma mes nous notre nos on",
    questions="""
    que qu quoi quel quelle quels quelles qui quand ou comment combien pourquoi lequel laquelle lesquels lesquelles
    est-ce a_quel a_quelle de_quel de_quelle dans_quel dans_quelle
    """,
    joins="et",
    adds="et mais ou alors donc puis qu'en_est-il",
    points=r"""
    il elle ils elles lui leur leurs (?<!est-)ce c cet cette ces cela ca(?!\s+va) ceci celui celle ceux celles y alors
    son sa ses
    """,
    requests=r"""
    s'il peux peut pourrais pourrait pourriez pouvez puis-je voudrais voulez veux dois que qu quoi quel quelle quels
    quelles qui quand ou comment combien pourquoi est-ce as avez a ai suis es est sont etait si dans pour sur liste
    donne[rz]? donne-moi dis dis-moi dites explique[rz]? decris montre[rz]? aide[rz]? rappelle[rz]? mentionne[rz]? ecris
    ecrivez tradui[ts] traduisez convertis calcule[rz]? compare[rz]? definis nomme[rz]? epelle[rz]? fais faites
    cree[rz]? redige[rz]? suggere[rz]? recommande[rz]? propose[rz]? trouve[rz]? cherche[rz]? trie[rz]? compte[rz]?
    resume[rz]?
    """,
    asks_back=(
        r"\b(?:as-tu|avez-vous)\b|\bm'?as[- ]tu\b|\b(?:tu|vous) (?:m'|me |nous )?(?:as|avais|avez|aviez) "
        r"(?:\w+ )?(?:recommande|suggere|conseille|propose|dit|mentionne|explique|donne|ecrit)"
        r"|\b(?:ton|tes|ta|votre|vos) (?:conseils?|recommandations?|suggestions?|reponses?|explications?"
        r"|propositions?)\b"
    ),
    months="""
    janvier janv, fevrier fevr, mars, avril avr, mai, juin, juillet juil, aout, septembre sept, octobre oct, novembre
    nov, decembre dec
    """,
    day="(?:er)?",
    near="en de depuis jusqu'en debut fin mi mois_de courant",
    numeric=r"\b(?P<day>\d{1,2})/(?P<month>\d{1,2})(?:/(?P<year>\d{4}))?\b",
)
