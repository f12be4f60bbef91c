"""Danish."""

from shared_core.languages.language import Language

DANISH = Language(
    code="da",
    stemmer="danish",
    stop_words="""
    af alle alt altid anden andre at bare blev blive bliver da de dem den denne der deres derfor det dette dig din dine
    disse dit du efter eller en end er et far fik for for før fra ham han hans har havde have hele hende hendes her hos
    hun hvad hvem hver hvilke hvilken hvilket hvis hvor hvorfor hvornar hvordan hvorhen i igen ikke ind ingen intet ja
    jeg jer jeres jo kan kom kun kunne lidt man mange med meget mellem men mere mig min mine mit mod ma matte nar ned
    nej noget nogen nogle nok nu ny og ogsa om op os over pa sa samme selv sig sin sine sit skal skulle som sad tak thi
    til ud uden under var vare vaere været vi vil ville vor vores være ok
    """,
    signs="""
    af altid anden andre bare blev bliver dem deres det dette dig dine disse efter eller før fra ham havde hej hele
    hende hendes hun hvad hvem hvilke hvilken hvilket hvis hvor hvorfor hvornar hvordan igen ikke ingen jeg jeres kunne
    lidt mange med meget mellem mig mine nej noget nogen nogle og ogsa os pa selv skal skulle som tak til uden været vil
    ville vores være idag morgen
    """,
    small_talk="""
    aften ah bedre bedst behageligt bestemt beklager bravo cool dag dagen dejlig dejligt desværre egentlig enig
    fantastisk farvel fedt fin fint flot forhabentlig forstar forstaet fortsat fredag glad glæder god godt godaften
    godmorgen godnat grineren ha haha haber hej hejsa helt hilsen hjælp hm hvem hyggelig hygge interessant ja jamen jeps
    jo klart kram kærlig lol lyder lykke ma maske mon morgen mange naturligvis nat nej netop nå ok okay perfekt precis
    problem præcis rart rigtig rigtigt ro rolig selvfølgelig sikkert sjovt skøn skønt smukt snart sov spændende super
    synd sød sødt tak takker tilfreds tillykke tror trist træt tusind undskyld vel velbekomme vent weekend wow
    """,
    about_talk="""
    beskriv chat detalje diskuterede diskutere emne forklar forklarede forklare fortalt fortælle information liste
    mening nævnte nævne opsummer opsummering rækkefølge sagde sagt samtale samtalen snakkede snakke spurgt spørge
    spørgsmal svar svare svarede talte talt husk huske tidligere
    """,
    speaker="jeg mig min mine mit vi os vores vor",
    hearer="du dig din dine dit i jer jeres",
    of_us="jeg mig min mine mit vi os vores",
    questions="hvad hvem hvis hvornar hvor hvordan hvilken hvilket hvilke hvorfor",
    joins="og",
    adds="og men eller sa hvad_med",
    points="det den de dem dette denne disse han hun ham hende hans hendes deres der da dens dets",
    requests="""
    kan kunne vil hvad hvem hvornar hvor hvordan hvilken hvilket hvilke hvorfor har er om hvis i for pa giv fortæl
    forklar beskriv vis hjælp husk skriv oversæt beregn sammenlign definer stav lav foresla anbefal find søg sorter
    opsummer
    """,
    months="""
    januar jan, februar feb, marts, april apr, maj, juni jun, juli jul, august aug, september sept sep, oktober okt,
    november nov, december dec
    """,
    day=r"\.?",
    near="i siden til fra sidste slutningen_af begyndelsen_af midten_af",
    numeric=r"\b(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.(?:\s?(?P<year>\d{4})\b)?",
    compounds=True,
)
