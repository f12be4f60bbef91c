"""The rules that find standing instructions in other languages: "always ..." and "... when I ask for ..."."""

from shared_core.index.standing_rules import Rule, StandingRules


def _orders(
    language: str, *, verbs: str, always: str, when: str, ask: str, please: str, not_: str, joins: str, supposes: str,
    request: str, past: str,
) -> StandingRules:  # fmt: skip
    """Return the rules of a language for orders that hold from then on.

    Args:
        language: its code.
        verbs: how orders begin, divided by bars.
        always: what makes an order hold from then on.
        when: what begins a condition, with the one who asks and whom he asks.
        ask: the verbs of a condition.
        please: what comes before an order.
        not_: what comes before a verb and denies it.
        joins: conjunctions between clauses, which may come before an order as well.
        supposes: makes a sentence one that does not state what it says.
        request: matches a question that wants something made, suggested or explained.
        past: matches a question about what was.
    """
    order = r"(?P<what>{verbs}\b"
    return StandingRules(
        language=language,
        words={"verbs": f"(?:{verbs})", "always": f"(?:{always})", "please": f"(?:(?:{please}|{joins}),? )*"},
        rules=(
            Rule("instruction", r"{please}{always}[ ,]+{please}" + order + ".+)", ("reply",), subject="phrase"),
            Rule(
                "instruction",
                rf"(?:{{always}} )?(?=[^,]{{{{0,100}}}}\b(?:{ask})\b)(?:{when})\b(?P<condition>[^,]{{{{0,100}}}}), "
                r"{please}(?:{always} )?" + order + ".+)",
                subject="phrase",
            ),
            Rule(
                "instruction",
                r"{please}" + order + rf".{{{{0,100}}}}?,? (?:{when})\b.{{{{0,80}}}}?\b(?:{ask})\b.*)",
                subject="phrase",
            ),
            Rule("instruction", r"{please}" + order + r".{{0,60}}?\b{always}\b.*)", ("reply",), subject="phrase"),
        ),
        lead_ins=f"{joins} {please}".replace("|", " "),
        clause=r"[.;:!?\n()\u2014\u2013]+\s*|\s-\s",
        ends=r"[.;!?\n()\u2014]",
        supposes=rf"\b(?:{supposes})\b",
        condition=rf",? (?:{when})\b",
        subjects={},
        light="",
        verbs=f"{verbs} {always} {not_}".replace("|", " "),
        generic=ask.replace("|", " "),
        tasks={},
        hints=f"{always}|{when}",
        starts=f"{verbs} {always} {when} {please}".replace("|", " "),
        request=request,
        past=past,
    )


GERMAN_RULES = _orders(
    "de",
    verbs=(
        "zeig|zeige|zeigen|nenn|nenne|nennen|gib|geben|antworte|antworten|schreib|schreibe|schreiben|verwende|verwenden"
        "|benutze|nutze|rechne|erkl\u00e4r|erkl\u00e4re|erkl\u00e4ren|f\u00fcge|fasse|sag|sage|sagen|erinnere|achte"
        "|vermeide|\u00fcbersetze|formatiere|halte|sprich|rede|duze|sieze|beginne|markiere|pr\u00fcfe|schlag"
        "|schlage|empfiehl|erw\u00e4hne|mach|mache|lass|bleib|bleibe|stell|stelle"
    ),
    always="immer|stets|nie|niemals|ab jetzt|ab sofort|von nun an|k\u00fcnftig|in zukunft|jedes mal",
    when="wenn ich|falls ich|sobald ich",
    ask="frage|sage|bitte|erw\u00e4hne|schreibe|spreche|m\u00f6chte|will|brauche",
    please="bitte",
    not_="nicht|kein|keine|mir|mich",
    joins="und|aber|also|dann|ach",
    supposes="angenommen|stell dir vor|sagt|sagte|meint|meinte|ob",
    request=(
        r"^\W*(?:bitte )?(?:zeig|nenn|gib|schreib|erkl\u00e4r|empfiehl|schlag|plan|mach|hilf|fass|rechne"
        r"|vergleich)\w*\b|\b(?:kannst|k\u00f6nntest|w\u00fcrdest) du\b"
        r"|\b(?:wie|was|welche\w*|wo|wann) (?:soll|kann|k\u00f6nnte)\w*\b"
    ),
    past=r"\b(?:hatte|hatten|habe|haben|hast|war|waren) (?:ich|wir|du)\b|\bgesagt\b|\berw\u00e4hnt\b",
)

FRENCH_RULES = _orders(
    "fr",
    verbs=(
        "montre|montrez|indique|indiquez|donne|donnez|r\u00e9ponds|r\u00e9pondez|\u00e9cris|\u00e9crivez|utilise"
        "|utilisez|cite|citez|explique|expliquez|ajoute|ajoutez|inclus|incluez|\u00e9vite|\u00e9vitez|dis|dites"
        "|rappelle|rappelez|parle|parlez|r\u00e9sume|r\u00e9sumez|traduis|traduisez|propose|proposez|sugg\u00e8re|garde"
        "|commence|termine|mentionne|mentionnez|appelle|tutoie|vouvoie|fais|mets"
    ),
    always=("toujours|jamais|d\u00e9sormais|dor\u00e9navant|\u00e0 partir de maintenant|\u00e0 l'avenir|chaque fois"),
    when="quand je|lorsque je|chaque fois que je|si je",
    ask="demande|dis|mentionne|parle|\u00e9cris|pose|veux",
    please="s'il te pla\u00eet|s'il vous pla\u00eet|merci de",
    not_="ne|pas|me|moi|te|vous",
    joins="et|mais|alors|donc|ne",
    supposes="imagine|imaginons|suppose|supposons|disait|a dit",
    request=(
        r"^\W*(?:montre|donne|\u00e9cris|explique|propose|sugg\u00e8re|fais|aide|r\u00e9sume|compare|calcule)\w*\b"
        r"|\b(?:peux-tu|pouvez-vous|pourrais-tu|pourriez-vous)\b|\b(?:comment|que|quel\w*) (?:dois|puis|devrais)\b"
    ),
    past=r"\b(?:avais|avait|avons|ai-je|as-tu) .{0,100}?\b(?:dit|mentionn\u00e9|parl\u00e9)\b",
)

SPANISH_RULES = _orders(
    "es",
    verbs=(
        "muestra|mu\u00e9strame|muestre|indica|indique|da|dame|responde|responda|contesta|conteste|escribe|escriba|usa"
        "|use|utiliza|utilice|cita|cite|explica|explique|a\u00f1ade|agrega|incluye|incluya|evita|evite|di|dime|recuerda"
        "|recu\u00e9rdame|habla|hable|resume|traduce|propone|sugiere|empieza|termina|menciona|mencione|ll\u00e1mame|pon"
        "|haz"
    ),
    always="siempre|nunca|jam\u00e1s|a partir de ahora|de ahora en adelante|en el futuro|cada vez",
    when="cuando|cuando yo|siempre que|cada vez que|si",
    ask="pregunte|pregunto|pida|pido|diga|digo|hable|hablo|mencione|menciono|escriba|escribo",
    please="por favor",
    not_="no|me|te|le",
    joins="y|pero|entonces|no",
    supposes="imagina|imagine|supon|supongamos|dijo|dice",
    request=(
        r"^\W*\u00bf?(?:mu\u00e9stra|da|escrib|explic|prop\u00f3n|sugier|sugi\u00e9re|recomi\u00e9nda|haz|ayuda|resum"
        r"|compar|calcul)\w*\b|\b(?:puedes|podr\u00edas|puede|podr\u00eda)\b|\b(?:c\u00f3mo|qu\u00e9|cu\u00e1l\w*)"
        r" (?:debo|puedo|deber\u00eda|podr\u00eda)\b"
    ),
    past=r"\b(?:dije|dijiste|mencion\u00e9|mencionaste|hablamos|hab\u00eda\w*)\b",
)

RUSSIAN_RULES = _orders(
    "ru",
    verbs=(
        "показывай|покажи|показывайте|отвечай|отвечайте|пиши|пишите|используй|используйте|называй|называйте|давай|указывай"
        "|указывайте|объясняй|объясняйте|добавляй|добавляйте|говори|говорите|переводи|переводите|избегай|напоминай"
        "|начинай|предлагай|предлагайте|упоминай|приводи"
    ),
    always="всегда|никогда|отныне|впредь|каждый раз|с этого момента",
    when="когда я|если я|каждый раз, когда я",
    ask="спрашиваю|спрошу|прошу|попрошу|говорю|пишу|упоминаю",
    please="пожалуйста",
    not_="не|мне|меня",
    joins="и|но|а|не",
    supposes="представь|предположим|сказал|сказала|говорит",
    request=(
        r"^\W*(?:покажи|дай|напиши|объясни|посоветуй|предложи|сделай|помоги|сравни|посчитай)\w*\b|\b(?:можешь|мог бы)\b"
        r"|\b(?:как|что|какой) (?:мне|лучше|можно)\b"
    ),
    past=r"\b(?:говорил|говорила|сказал|сказала|упоминал|упоминала|было|была|был)\b",
)

OTHER_RULES = (GERMAN_RULES, FRENCH_RULES, SPANISH_RULES, RUSSIAN_RULES)
"""German, French, Spanish and Russian."""
