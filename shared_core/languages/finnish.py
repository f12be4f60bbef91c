"""Finnish."""

from shared_core.languages.language import Language

FINNISH = Language(
    code="fi",
    stemmer="finnish",
    stop_words="""
    aina ehka ei eika eivat eli ellei emme en enaa enemman eniten eri et ette etta han hanen hanelle hanta he heidan
    heille ihan ilman itse ja jo joka jokin jonka jopa jos joskus jossa jota jotka jotta kai kaikki kanssa kautta ketka
    koko koska koskaan kuin kuinka kuka kun kuten kyl kylla luona luo me meidan meille meita mika mikä mikaan mikali
    miksi milla millainen milloin mina minkä minka minne minua minulla minulle minun minut missa mista mita miten mihin
    mitka moi muu muut mukaan mutta myos ne niiden niin niita noin nuo nyt ole olemme olen olet olette oli olimme olin
    olisi olit olivat olla on ovat paljon pian pitaa saa saada se sekä seka sen siella siihen siina siita sille silloin
    sina sinne sinua sinulla sinulle sinun sinut sitten tai takia tama taman tassa tasta te teidan teille tuo tuossa
    taalla tahan vaan vai vaikka vain vasta viela voi voin voit voisi voisitko vuoksi yli ok
    """,
    signs="""
    aina ehka eika eivat emme enaa enemman etta han hanen heidan ilman itse jo joka jonka jos jossa jota jotka kaikki
    kanssa kiitos kiitti koska koskaan kuin kuinka kuka kun kylla meidan meille mika miksi milloin mina minka minne
    minulla minulle minun missa mista mita miten mihin moi mutta myos niin nyt olen olet oli olin olivat olla ovat
    paljon sen siella siina siita sina sinulla sinun sitten tai taalla tama taman tassa vain viela voi voin voisitko
    eilen huomenna tanaan ei
    """,
    small_talk="""
    aamu aamua anteeksi apua ei ehka erinomaista haha hauska hauskaa hauskoja hei heippa hetki hieno hienoa hienosti hm
    hyva hyvaa hyvin huh huomenta ihana ihanaa ihan ilman ilta iltaa jees jep jippii joo juu juuri kai kaunis
    kiinnostava kiinnostavaa kiitos kiitoksia kiitti kiva kivaa kyllä kylla lol loistava loistavaa lopulta mahtava
    mahtavaa mahtavasti moi moikka moro mukava mukavaa nahdaan no nuku ok okei oho oikea oikeasti oikein ok onnea
    onneksi onnittelut paiva paivaa parempi paras perfektiä pian ratkaisu rauhassa selva selvasti siisti surku
    surullinen super tervetuloa terve toivon toivottavasti totta tuhannet tuhat upea upeaa valitettavasti valmis varma
    varmaan varmasti vasynyt viikonloppu viikonloppua vitsi yota
    """,
    about_talk="""
    aihe keskustelu keskustelimme kerro kertoi kerroin kuvaile kysy kysyin kysymys lista luettele mainitse mainitsin
    mainitsi mielipide muista muistaa muistatko puhua puhuimme puhuttiin sanoi sanoin sanoit selita selitti tiivista
    tiivistelma vastasi vastaus yksityiskohta jarjestys
    """,
    speaker="mina minun minua minulla minulle minut minusta me meidan meita meilla meille",
    hearer="sina sinun sinua sinulla sinulle sinut te teidan teita teilla teille",
    of_us=r"mina minun minua minulla minulle minut me meidan meita meilla meille \w+mme",
    questions="""
    mika mita milloin missa mista mihin minne miten kuinka kuka kenen ketka mitka miksi millainen mina_paivana
    """,
    joins="ja",
    adds="ja mutta tai entä enta sitten no",
    points="""
    se sen sita siina siita siihen sille silla ne niita niiden han hanen hanta he heidan tuo tama silloin siella
    """,
    requests="""
    voitko voisitko mika mita milloin missa mista mihin minne miten kuinka kuka miksi onko oliko jos luettele anna kerro
    selita kuvaile nayta auta muistuta kirjoita kaanna laske vertaa maarittele tee luo ehdota suosittele etsi jarjesta
    tiivista
    """,
    months="""
    tammikuu tammikuuta tammikuun tammikuussa, helmikuu helmikuuta helmikuun helmikuussa, maaliskuu maaliskuuta
    maaliskuun maaliskuussa, huhtikuu huhtikuuta huhtikuun huhtikuussa, toukokuu toukokuuta toukokuun toukokuussa,
    kesakuu kesakuuta kesakuun kesakuussa, heinakuu heinakuuta heinakuun heinakuussa, elokuu elokuuta elokuun elokuussa,
    syyskuu syyskuuta syyskuun syyskuussa, lokakuu lokakuuta lokakuun lokakuussa, marraskuu marraskuuta marraskuun
    marraskuussa, joulukuu joulukuuta joulukuun joulukuussa
    """,
    day=r"\.?",
    near="viime ensi tana",
    numeric=r"\b(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.(?:\s?(?P<year>\d{4})\b)?",
    compounds=True,
)
