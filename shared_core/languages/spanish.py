"""Spanish."""

from shared_core.languages.language import Language

SPANISH = Language(
    code="es",
    stemmer="spanish",
    stop_words="""
    a adonde ahi ahora al algo algun alguna algunas alguno algunos alli ante antes aquel aquella aquellas aquellos aqui
    asi aun aunque bien cada casi como con contra cual cuales cualquier cuando cuanta cuantas cuanto cuantos cuyo cuya
    de del desde despues donde dos durante e el ella ellas ello ellos en entonces entre era eran eres es esa esas ese
    eso esos esta estaba estaban estabamos estado estais estamos estan estar estas este esto estos estoy estuve estuvo
    estuvimos fue fueron fui fuimos gracias ha habia habian han has hasta hay he hemos hube hubo incluso la las le les
    lo los luego mas me mi mia mias mientras mio mios mis misma mismas mismo mismos mucha muchas mucho muchos muy nada
    ni ningun ninguna ninguno no nos nosotras nosotros nuestra nuestras nuestro nuestros nunca o os otra otras otro
    otros para pero poco por porque pues puede pueden puedes puedo que quien quienes se sea ser sera si sido siempre sin
    sino sobre sois solo somos son soy su sus suya suyas suyo suyos tal tambien tampoco tan tanto te tener tengo ti
    tiene tienen tienes todavia todo todos toda todas tras tu tus tuya tuyo tuvo un una unas uno unos usted ustedes va
    vamos vosotros voy vuestra vuestro y ya yo ok
    """,
    signs="""
    ahora al algo alli aqui asi ayer bueno buenos buenas cada cuales cuando cuanta cuantas cuanto cuantos desde despues
    donde ella ellos entonces era eran esa ese eso esos estaba estaban estamos estan estas esto estos estoy fue fueron
    fui fuimos gracias habia hablamos han hasta hay hemos hola hoy jamas luego mas mejor mis mucho muchas muy nada
    nosotros nuestra nuestras nuestro nuestros nunca para pero porque pues puede puedes puedo que quien quienes siempre
    sobre solo somos soy su sus tal tambien tengo tiene tienes tienen todo todos una unas uno unos usted vamos vosotros
    voy yo tenemos tenia cual manana dijo fuera entonces
    """,
    endings=(("i(a|as|an|amos)$", r"í\1"),),
    small_talk="""
    abrazo acuerdo adelante adios ah alegra alegro anda animo ay ayuda bastante bella besos bien bienvenido bienvenida
    bravo broma buen buena buenas bueno buenos cansado cansada carino chao chau chevere chiste ciao claro clara cierto
    como como entendido correcto cosa cuidate cuidado curioso dale descansa desde dia dias dicho divertido domingo duda
    dulce encanta encantado encantada encanto enhorabuena enserio entendido entiendo espera espero estupendo exacto
    exactamente excelente fantastico favor felicidades feliz fenomenal fin finde genial gracias gracioso gran grande
    guay gusta gusto ha haha hasta hecho hola hoy igualmente increible interesante ja jaja jajaja je jeje jo lastima
    linda lindo listo lol luego lunes madre mal manana maravilla maravilloso mejor menos mil momento mono muchisimas
    muchisimo mucho muchas nada noche noches nota oh ok okay ojala oye pasa pena perdon perdona perfecto perfecta pienso
    posible precioso pronto puf quiza quizas que rato razon rico risa sabado saludo saludos seguro semana sentido siento
    sorpresa suena suerte super supongo tal tarde tardes tranquilo tranquila triste uf uy vale vaya ver verdad verdadero
    viernes venga vida wow bonito bonita haz sigue siga creo parece sueno gracia
    """,
    about_talk="""
    aspecto charla charlamos chat comentamos comentar comentado conversacion conversamos cuentame contar conte conto
    decir dije dijo dijiste dicho digas dijimos dijeron decimos describe describir detalle detalles discutir discutimos
    explica explicar explicaste habla hablamos hablar hablado informacion lista listado menciona mencionar mencione
    menciono mencionado opinion orden pregunta preguntas preguntar recuerda recordar recuerdas respuesta responder
    resume resumen resumir tema temas recapitula anteriormente opinas
    """,
    speaker="yo me mi mis mia mio mias mios conmigo nos nosotr[oa]s nuestr[oa]s?",
    hearer="tu te ti tus tuy[oa]s? contigo usted ustedes vos vosotr[oa]s os vuestr[oa]s? le su sus",
    of_us=r"yo me mi mis mia mio mias mios nos nosotr[oa]s nuestr[oa]s? \w+[aei]mos",
    questions="""
    que quien quienes cual cuales cuando donde adonde como cuanto cuanta cuantos cuantas por_que a_que de_que en_que
    con_que a_quien de_quien con_quien para_que desde_cuando hasta_cuando
    """,
    joins="y",
    adds=r"y pero o entonces pues que_hay_de que_pasa_con que_tal(?=\s+\w)",
    points=r"""
    ella ello ellos ellas lo(?!\s+que) le les eso esto esa ese esos esas este estos estas aquello aquel aquella alli ahi
    entonces su sus
    """,
    requests=r"""
    por_favor puedes puede podrias podria podriais quieres quisiera deberia debo que quien quienes cual cuales cuando
    donde adonde como cuanto cuanta cuantos cuantas has ha he es son era eran esta estan hay tiene tengo si en para
    sobre lista listame dame di dime explica explicame describe muestra muestrame ayuda ayudame recuerdame menciona
    escribe traduce convierte calcula compara define nombra deletrea haz hazme crea redacta sugiere recomienda propon
    busca encuentra ordena cuenta resume resumeme
    """,
    asks_back=(
        r"\b(?:me|nos) (?:recomendaste|sugeriste|aconsejaste|propusiste|dijiste|mencionaste|explicaste|diste"
        r"|escribiste)"
        r"|\b(?:recomendaste|sugeriste|aconsejaste|propusiste|dijiste|mencionaste|explicaste|escribiste)\b"
        r"|\btus? (?:consejos?|recomendacion(?:es)?|sugerencias?|respuestas?|explicacion(?:es)?|propuestas?)\b"
    ),
    months="""
    enero ene, febrero feb, marzo, abril abr, mayo, junio jun, julio jul, agosto ago, septiembre setiembre sept sep,
    octubre oct, noviembre nov, diciembre dic
    """,
    day="(?:o|ro)?",
    of=r"(?:de\s+)?",
    year=r",?\s+(?:del?\s+)?",
    near="en de desde hasta pasado principios mediados finales mes_de",
    numeric=r"\b(?P<day>\d{1,2})/(?P<month>\d{1,2})(?:/(?P<year>\d{4}))?\b",
)
