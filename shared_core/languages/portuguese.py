"""Portuguese."""

from shared_core.languages.language import Language

PORTUGUESE = Language(
    code="pt",
    stemmer="portuguese",
    stop_words="""
    a agora ai ainda algo algum alguma algumas alguns ali ante antes ao aos apos aquela aquelas aquele aqueles aqui
    aquilo as assim ate cada com como contra da das de dela delas dele deles depois desde dessa desse desta deste do dos
    durante e ela elas ele eles em enquanto entao entre era eram essa essas esse esses esta estamos estao estar estas
    estava estavam este esteja estes estou eu fazer foi fomos for foram fui ha isso isto ja la lhe lhes lo mais mas me
    mesma mesmo meu meus minha minhas muita muitas muito muitos na nada nao nas nem nessa nesse nesta neste ninguem no
    nos nossa nossas nosso nossos num numa nunca o obrigada obrigado onde os ou outra outras outro outros para pela
    pelas pelo pelos perto pode podem podes podia por porque porem pouco pra qual quais quando quanta quantas quanto
    quantos que quem se seja sem sempre sera seu seus si sido so sob sobre sou sua suas tal tambem tanto te tem temos
    tenho ter teu teus ti tinha tinham toda todas todo todos tu tua tudo um uma umas uns vai vamos voce voces vos vou ok
    """,
    signs="""
    agora ainda algum alguma ao aos aqui assim ate cada com depois dela dele ela ele eles em entao essa esse esta estao
    estava este estou eu foi foram fui isso isto ja mais mas mesmo meu meus minha minhas muito muitos nao nas nem nossa
    nosso nossos num numa nunca obrigada obrigado ontem onde ola outra outro para pela pelo porque qual quais quando
    quantas quanto quantos quem sem sempre seu seus sobre sou sua suas tambem tem temos tenho tinha todos tudo uma uns
    vai vamos voce voces vou hoje amanha
    """,
    endings=(("cao$", "ção"), ("coes$", "ções"), ("i(a|as|am|amos)$", r"í\1")),
    small_talk="""
    abraco abracos acho acordo adeus adoro ajuda alegria amei amigo amo bacana beijo beijos beleza bem bela belo boa
    boas bom bons bonito brincadeira cansado cansada caramba cara certeza certo claro combinado correto coisa cuida
    desculpa desculpe deus dia dias divertido dormir engracado entendi entendido espera espero espetacular excelente
    exatamente falou fantastico favor feliz fim fixe forca gosto grande gratidao haha igualmente incrivel interessante
    jeito kkk kkkk kkkkk legal linda lindo lol logo maravilha maravilhoso melhor mil momento nada noite nossa ok okay oi
    ola otimo parabens pena penso perfeito pois porreiro possivel prazer pronto puxa quem rapido razao rir rs rsrs sabe
    saudade saudades saude semana sei sim sinto sorte sorry talvez tarde tardes tchau tranquilo triste tudo valeu
    verdade vida viva vontade
    """,
    about_talk="""
    assunto chat conversa conversamos conversar contar contei contou descreve descrever detalhe detalhes discutir
    discutimos disse disseste dizer dito explica explicar explicou fala falamos falar falei informacao informacoes lista
    listar lembra lembrar menciona mencionar mencionei mencionou opiniao ordem pergunta perguntas perguntar recorda
    resposta responder respondeu resume resumir resumo tema
    """,
    speaker="eu me mim meu meus minha minhas comigo nos noss[ao]s?",
    hearer="tu te ti teu teus tua tuas contigo voce voces vos seu seus sua suas",
    of_us=r"eu me mim meu meus minha minhas nos noss[ao]s? \w+[aei]mos",
    questions="""
    que quem qual quais quando onde aonde como quanto quanta quantos quantas por_que porque o_que a_que de_que em_que
    com_quem
    """,
    joins="e",
    adds="e mas ou entao e_quanto que_tal",
    points="""
    ele ela eles elas isso isto esse essa esses essas este estes aquilo aquele aquela la ali entao dele dela seu sua
    """,
    requests="""
    por_favor pode podes poderia podia que quem qual quais quando onde como quanto quanta quantos quantas tem tens e foi
    era se em para lista liste da-me diga diz explica explique descreve descreva mostra mostre ajuda ajude lembra lembre
    escreve escreva traduz traduza converte calcula calcule compara define faz faca cria crie sugere sugira recomenda
    recomende procura encontra ordena conta resume resuma
    """,
    months="""
    janeiro jan, fevereiro fev, marco mar, abril abr, maio mai, junho jun, julho jul, agosto ago, setembro set, outubro
    out, novembro nov, dezembro dez
    """,
    day="(?:o)?",
    of=r"(?:de\s+)?",
    year=r",?\s+(?:de\s+)?",
    near="em de desde ate passado inicio meados final fim",
    numeric=r"\b(?P<day>\d{1,2})/(?P<month>\d{1,2})(?:/(?P<year>\d{4}))?\b",
)
