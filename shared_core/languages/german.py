"""German."""

from shared_core.languages.language import Language

GERMAN = Language(
    code="de",
    stemmer="german",
    stop_words="""
    ab aber alle allem allen aller alles als also am an andere anderem anderen anderer anderes auch auf aus ausser bei
    beim bereits bevor bin bis bist bitte da dabei dadurch dafur dagegen daher damit danach danke dann daran darauf
    daraus darf darin daruber darum das dass davon davor dazu dein deine deinem deinen deiner deines dem den denn deren
    der des dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch durfen ein eine einem einen
    einer eines er es etwa etwas euch euer eure euren eurer fur gegen gehabt genau gewesen hab habe haben hast hat hatte
    hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im immer in indem ins irgend ist ja jede
    jedem jeden jeder jedes jene jetzt kann kannst kein keine keinem keinen keiner keines konnen konnte konnten konntest
    konnt machen mal man mehr mein meine meinem meinen meiner meines mich mir mit muss mussen musst musste nach nachdem
    nein nicht nichts noch nochmal nun nur ob oder ohne schon sehr sei seid sein seine seinem seinen seiner seines seit
    selbst sich sie sind so solche solchem solchen soll sollen sollte sondern sonst uber um und uns unser unsere unserem
    unseren unserer unseres unter viel vom von vor wahrend wann war waren warst warum was weder weg weil weiter welche
    welchem welchen welcher welches wem wen wenig wenn wer werde werden wessen wie wieder wieso wieviel will wir wird
    wirst wo wobei woher wohin womit woran worden woruber wovon wozu wurde wurden wurdest n ne s zu zum zur zwar
    zwischen ok
    """,
    signs="""
    aber auch auf bitte danke dann dass dein deine dich diese dieser dieses dir doch dort durch eine einem einen einer
    euch fur gestern guten habe haben hallo hatte heute hier ich ihm ihn ihr ihre immer ist jetzt kann kein keine konnen
    machen mein meine meinem meinen meiner mich mir mit morgen muss nach nein nicht nichts noch nur oder ohne schon sehr
    seine seit sich sie sind tschuss uber und uns unser unsere unserem unseren unserer vom wann waren warum weil welche
    welchem welchen welcher welches wenn wer werden wie wieder wieviel wir wird wo wurde zum zur zwischen genau naja
    gern gerne
    """,
    small_talk="""
    abend ach ah aha also anstrengend ausgezeichnet bald bescheid besser beste bestens bis bitte bravo cool danke
    dankeschon dir echt egal eigentlich einfach einverstanden endlich entschuldigung erledigt fein freue freut froh geht
    gehts gemacht genau gern gerne geschafft gewiss glaube gluck gluckwunsch grossartig gruss grusse gruezi gut gute
    guten guter gutes ha haha halb hallo halt hehe herrlich herzlich herzlichen hey hi hilfe hilft hm hmm hoffe
    hoffentlich hubsch interessant ja jo juhu kein klar klasse klingt komisch kurz lach lacheln langsam leid leider lieb
    liebe lieber lol los lustig macht machs mag merci moin moment morgen mude nacht naja nee nett nix noch nun okay ok
    oje perfekt prima problem quatsch recht richtig ruhig schade schatz schau schlaf schlecht schlimm schon schone
    schonen schoner schones schreck servus sicher sofort sorry spass spater spitze stimmt super suss tag tage tausend
    tja toll tolle traum traurig tschau tschuss uff ui uups verstanden verstehe viel viele vielen vielleicht wahnsinn
    wahr wahrscheinlich warte weiss weiter wirklich witz witzig wochenende wohl wow wunderbar wunsche zufrieden heute
    gerade dank ebenfalls ebenso gell ne joa jep yep yes nope lass lasst uns mach meinst meine denke finde sag
    """,
    about_talk="""
    antwort antworten antwortest gefragt frage fragen aspekt besprechen besprochen beschreib beschreibe beschreiben chat
    gesprach gesprochen sprechen detail einzelheit erklar erklare erklaren erwahnen erwahnt erzahlt erzahlen erinnern
    erinnerst fruher gesagt sagen sagte sagtest information liste meinung nennen genannt reihenfolge reden geredet thema
    uberblick ubersicht unterhalten unterhaltung vorhin zusammenfassen zusammenfassung fasse
    """,
    speaker="ich mich mir mein meine[mnrs]? wir uns unser unsere[mnrs]?",
    hearer="du dich dir dein deine[mnrs]? ihr euch euer eure[mnrs]? ihnen",
    of_us="ich mir mich mein meine[mnrs]? wir uns unser unsere[mnrs]?",
    questions="""
    was wie wieviel wieviele wann wo wohin woher wer wem wen wessen welche[mnrs]? warum wieso weshalb womit woran worauf
    woruber wovon wozu
    """,
    joins="und",
    adds="und aber oder also dann was_ist_mit wie_ist_es_mit wie_steht_es_mit wie_war_es_mit",
    points=r"""
    (?<!geht\s)es dies diese[mnrs]? jene[mnrs]? sie ihn ihm ihr ihre[mnrs]? er sein seine[mnrs]? dort dann damals davon
    dafur damit daran darauf dazu dabei darin deren dessen
    das(?=\s*[?.,!]|\s+(?:war|ist|hat|so|noch|nochmal|genau|gleich))
    """,
    requests="""
    bitte kann kannst konntest konnte konnen wurdest wurden willst soll sollte darf was wie wieviel wann wo wohin woher
    wer wem wen wessen welche[mnrs]? warum wieso weshalb hast habe hat haben ist sind war waren wenn falls in fur auf
    liste nenne? gib sage? erklare? erklar beschreibe? zeige? hilf erinnere? erwahne? schreibe? ubersetze? rechne
    berechne vergleiche? definiere buchstabiere mache? erstelle? entwirf empfiehl schlage? finde suche? sortiere zahle
    fasse?
    """,
    asks_back=(
        r"\bhast du\b|\bhattest du\b|\bdu (?:\w+ )?(?:empfohlen|vorgeschlagen|geraten|gesagt|erwahnt|erklart|gegeben|"
        r"geschrieben|genannt)\b|\bdein(?:e|en|em|er)? (?:rat|ratschlag\w*|empfehlung\w*|vorschlag\w*|antwort\w*|"
        r"erklarung\w*)\b"
    ),
    months="""
    januar janner jan, februar feb, marz mrz, april apr, mai, juni jun, juli jul, august aug, september sept sep,
    oktober okt, november nov, dezember dez
    """,
    day=r"\.?",
    year=r"(?:,|\s+des\s+jahres)?\s+",
    near="im in seit bis letzten letztem vergangenen diesen diesem anfang mitte ende vor nach",
    numeric=r"\b(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.(?:\s?(?P<year>\d{4})\b)?",
    compounds=True,
    nouns=True,
)
