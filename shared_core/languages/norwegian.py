"""Norwegian (Bokmål)."""

from shared_core.languages.language import Language

NORWEGIAN = Language(
    code="no",
    stemmer="norwegian",
    stop_words="""
    alle alltid alt andre annen at av bare ble bli blir blitt da de deg dem den denne der deres det dette di din disse
    ditt du dykk eller en enn er et etter far fikk for for før fra ha hadde han hans har henne hennes her hos hun hva
    hvem hver hvilke hvilken hvilket hvis hvor hvorfor hvordan i igjen ikke inn ingen ingenting ja jeg jo kan kom kun
    kunne litt man mange med meg meget mellom men mer mi min mine mitt mot mye ma matte nar ned nei noe noen nok na og
    ogsa om opp oss over pa sa samme selv seg si sin sine sitt skal skulle som takk til ut uten under var vart vil ville
    vi være vært var vare vart ok
    """,
    signs="""
    alltid andre av bare ble blir blitt deg dem deres det dette disse ditt eller etter fra hadde hei henne hennes hun
    hva hvem hvilke hvilken hvilket hvis hvor hvorfor hvordan igjen ikke ingen jeg kunne litt mange med meg mellom mitt
    mye nei noe noen og ogsa oss pa seg selv skal skulle som takk til uten vil ville være vært na idag morgen
    """,
    small_talk="""
    absolutt ah akkurat bedre best bestemt beklager bra bravo dag dagen deilig dessverre egentlig enig fantastisk fin
    fint flott forhapentligvis forstar forstatt fredag glad gleder god godt gratulerer greit gøy ha haha hade haper hei
    heisann helg hilsen hjelp hm hyggelig interessant ja jada javel jepp jo kjempebra klart klem koselig kos kult kveld
    lol lykke lyder mange kanskje morgen moro morsomt natt natta naturligvis nei neida ok okei oi perfekt presis problem
    riktig rolig selvfølgelig sikkert skjønner skjønt smart snakkes snart snill sov spennende stemmer super synd søt
    takk takker trist tror trøtt tusen unnskyld vakkert vel velbekomme vent vær så wow
    """,
    about_talk="""
    beskriv chat detalj diskuterte diskutere emne forklar forklarte forklare fortalt fortelle informasjon liste mening
    nevnte nevne oppsummer oppsummering rekkefølge sa sagt samtale samtalen snakket snakke spurt spørre spørsmal svar
    svare svarte husk huske tidligere
    """,
    speaker="jeg meg min mine mitt mi vi oss var vare vart",
    hearer="du deg din dine ditt dere deres",
    of_us="jeg meg min mine mitt mi vi oss vare vart",
    questions="hva hvem nar hvor hvordan hvilken hvilket hvilke hvorfor",
    joins="og",
    adds="og men eller sa hva_med",
    points="det den de dem dette denne disse han hun ham henne hans hennes deres der da dens dets",
    requests="""
    kan kunne vil hva hvem nar hvor hvordan hvilken hvilket hvilke hvorfor har er om hvis i for pa gi fortell forklar
    beskriv vis hjelp husk skriv oversett beregn sammenlign definer stav lag foresla anbefal finn søk sorter oppsummer
    """,
    months="""
    januar jan, februar feb, mars, april apr, mai, juni jun, juli jul, august aug, september sept sep, oktober okt,
    november nov, desember des
    """,
    day=r"\.?",
    near="i siden til fra forrige slutten_av begynnelsen_av midten_av",
    numeric=r"\b(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.(?:\s?(?P<year>\d{4})\b)?",
    compounds=True,
)
