"""Dutch."""

from shared_core.languages.language import Language

DUTCH = Language(
    code="nl",
    stemmer="dutch",
    stop_words="""
    aan al alle alleen allemaal als altijd ander andere anderen bedankt ben bent bij binnen bijna d daar daarna dan dank
    dat de der deze die dit doe doen door dus een en enkele er erg even ge geen geweest haar had hadden heb hebben hebt
    heeft hem hen het hier hij hoe hoeveel hun iets ik in is ja je jij jou jouw jullie kan kon konden kunnen kunt kwam
    maar me meer men met mij mijn moest moet moeten na naar nee niet niets nog nooit nu of om omdat onder ons onze ook
    op over pas s te tegen ten terwijl toch toen tot tussen u uit uw van vanaf veel vanwege voor waar waarom wanneer
    waren was wat we weer weinig wel welk welke werd werden wie wij wil willen wordt worden zal ze zei zelf zich zij
    zijn zo zonder zou zouden zullen ok
    """,
    signs="""
    aan alleen allemaal altijd andere bedankt bij daar dat deze doen een geen gisteren geweest haar hadden heb hebben
    hebt heeft het hij hoe hoeveel hun iets ik jij jou jouw jullie kunnen kunt maar mij mijn moet moeten morgen naar
    niet niets nog nooit nu omdat onder ons onze ook toen uit uw vandaag vanaf veel waar waarom wanneer wat welke werd
    wij wordt zijn zonder zou hallo dankjewel wel
    """,
    small_talk="""
    aardig ach ah akkoord alles avond bedankt beste beter blij bravo cool dag dagen dank dankje dankjewel doei doeg
    duidelijk echt eens eerlijk eindelijk excuus fijn fijne fantastisch gaat gaaf geen gefeliciteerd geluk geweldig
    gezellig gewoon goed goede goeie goedemorgen goedenavond goedemiddag graag grappig grapje groeten groetjes haha
    hallo heerlijk helaas helemaal hey hi hm hoi hoop hoor idee inderdaad interessant jammer jee joh juist ja jawel
    klaar klinkt klopt kom kunt lach lekker leuk leuke lief lieve lol maakt mee mensen middag misschien moe mooi mooie
    morgen natuurlijk nacht nee nou nodig ok oke okay oh oeps perfect plezier precies prettig prima probleem rustig
    slaap slecht sorry snap snel sterkte succes super toch top tot trouwens uit veel verdrietig vind vriend waar
    waarschijnlijk weekend weet welkom weltrusten wel wow zeker zeg zien ziens zo zorgen
    """,
    about_talk="""
    antwoord antwoorden beschrijf beschrijven besproken bespreken chat detail details eerder geantwoord genoemd gepraat
    gesprek gesproken gevraagd gezegd herinner herinneren informatie leg lijst mening noemen noemde onderwerp praten
    praatten samenvatten samenvatting uitleg uitleggen verteld vertel vertellen volgorde vraag vragen zeggen zei
    """,
    speaker="ik me mij mijn wij we ons onze",
    hearer="jij je jou jouw jullie u uw",
    of_us="ik mij mijn wij we ons onze",
    questions="wat wie wanneer waar hoe hoeveel welke? waarom waarmee waarover waarvan",
    joins="en",
    adds="en maar of dus dan hoe_zit_het_met",
    points="het dat dit deze die hij zij ze hem haar hun er daar toen daarvan daarvoor zijn",
    requests="""
    kun kan kunt zou wil wat wie wanneer waar hoe hoeveel welke? waarom heb heeft ben is zijn was als in voor op lijst
    noem geef vertel zeg leg beschrijf toon help herinner schrijf vertaal bereken vergelijk definieer spel maak stel
    zoek vind sorteer tel vat
    """,
    months="""
    januari jan, februari feb, maart mrt, april apr, mei, juni jun, juli jul, augustus aug, september sept sep, oktober
    okt, november nov, december dec
    """,
    day="(?:e|ste|de)?",
    near="in sinds tot vanaf afgelopen vorige begin half eind",
    numeric=r"\b(?P<day>\d{1,2})-(?P<month>\d{1,2})(?:-(?P<year>\d{4}))?\b",
    compounds=True,
)
