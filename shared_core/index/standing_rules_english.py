"""The English rules that find standing facts: preferences, allergies, diets, roles, constraints, instructions."""

import re

from shared_core.index.standing_rules import KINDS, Rule, StandingRules
from shared_core.languages.english import NOT_NAMES

_VERBS = (
    "include|use|show|give|provide|format|answer|reply|respond|explain|mention|confirm|add|write|list|cite|ask|remind"
    "|tell|suggest|recommend|keep|make|put|start|end|begin|highlight|maintain|check|avoid|assume|treat|refer|call"
    "|address|speak|talk|convert|consider|ensure|send|summari[sz]e|translate|note|point|prioriti[sz]e|focus|stick"
    "|offer|propose|quote|say|state|specify|describe|double-check|verify|test|return|generate|leave|skip|round|limit"
    "|wrap|indent|comment|document|compare|break|number|present|prefer|apologi[sz]e|repeat|assign|schedule|book|order"
    "|plan|cook|wake|notify|report|display|outline|link|share|structure|sort|group|phrase|clarify|warn|define|estimate"
)
_GREETINGS = [f"{word}{mark}" for word in ("hi", "hello", "hey", "there") for mark in ("", ",", "!", ".")]
_AFTER_GREETING = "|".join(rf"(?<=\b[{one[0].upper()}{one[0]}]{re.escape(one[1:])} )" for one in _GREETINGS)
"""After "Hi, " and the like, "I'm Bob" tells a name, and so does "I'm Christian"; "I'm German" does not."""
_NO_NAME = r"(?:Dr|Mrs?|Ms|Prof)\b|[A-Z]{{3}}"
"""What "Hi, I'm ..." says with capitals besides a name: a title, at whose dot a sentence seems to end, or "ADHD"."""

_OCCUPATIONS = (
    "accountant|actor|actress|analyst|architect|artist|astronomer|attorney|baker|banker|barista|biologist|bookkeeper"
    "|builder|butcher|carpenter|cashier|chef|chemist|coach|consultant|cook|copywriter|counsel(?:l)?or"
    "|dentist|designer"
    "|dev|developer|director|doctor|driver|economist|editor|electrician|engineer|entrepreneur|farmer|filmmaker"
    "|firefighter|founder|freelancer|gardener|geologist|hairdresser|historian|illustrator|instructor|journalist|judge"
    "|lawyer|lecturer|librarian|linguist|manager|mathematician|mechanic|midwife|musician|novelist|nurse|nutritionist"
    "|officer|optician|painter|paralegal|paramedic|pastor|pharmacist|philosopher|photographer|physician|physicist"
    "|physiotherapist|pilot|plumber|poet|police officer|producer|professor|programmer|psychologist"
    "|realtor|receptionist"
    "|researcher|retiree|sales(?:man|woman|person)|scientist|secretary|sociologist|soldier"
    "|statistician|student|surgeon"
    "|surveyor|sysadmin|tailor|teacher|technician|therapist|trainer|translator|tutor|veterinarian|vet|waiter|waitress"
    "|welder|writer"
)
_EATERS = "vegan|vegetarian|pescatarian|pescetarian|flexitarian|lacto-vegetarian|omnivore|fruitarian"
_LIMITS = (
    "gluten[- ]free|dairy[- ]free|lactose[- ]intolerant|gluten[- ]intolerant|keto|kosher|halal|diabetic|c(?:o)?eliac"
    "|paleo|teetotal|low[- ](?:carb|sodium|sugar|fat)"
)
_LANGUAGES = (
    "english|german|french|spanish|italian|portuguese|dutch|polish|russian|ukrainian|turkish|arabic|hebrew|hindi|urdu"
    "|bengali|chinese|mandarin|cantonese|japanese|korean|thai|vietnamese|swedish|danish|norwegian|finnish|greek|czech"
    "|hungarian|romanian|latin|esperanto"
)
_FOODS = (
    "meat|fish|pork|beef|chicken|lamb|seafood|shellfish|dairy|eggs?|gluten|sugar|nuts?|peanuts?|wheat|bread|carbs|soy"
    "|cheese|milk|alcohol|coffee|caffeine|tea|wine|beer|animal|fast food|onions?"
    "|garlic|mushrooms?|tomatoes|cilantro|red meat|processed|spicy"
)

ENGLISH_RULES = StandingRules(
    language="en",
    words={
        "i": r"i(?:'m| am)",
        "very": (
            r"(?:(?:also|still|now|severely|deathly|badly|highly|very|quite|really|mildly|slightly"
            r"|extremely|a bit) )*"
        ),
        "no": r"(?:(?:not|no longer|never) )?(?:(?:actually|really|longer|strictly) )?",
        "kin": (
            r"my (?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc[e\u00e9]e?|son|daughter"
            r"|kids?|child(?:ren)?"
            r"|mother|mom|mum|father|dad|sister|brother|family|parents|grandmother|grandfather|toddler|baby|roommate)"
        ),
        "verbs": f"(?:{_VERBS})",
        "eaters": f"(?:{_EATERS})",
        "limits": f"(?:{_LIMITS})",
        "languages": f"(?:{_LANGUAGES})",
        "occupations": f"(?:{_OCCUPATIONS})",
        "foods": f"(?:{_FOODS})",
        "ask": r"(?:ask|asked|say|mention|request|talk|inquire|enquire|message|send|share|type|write)",
        "lately": r"(?:(?:really|much|strongly|generally|usually|always|personally|also|still|now|definitely|actually"
        r"|typically|often|tend to|do|would always|no longer|don't|do not) )*",
    },
    rules=(
        Rule(
            "allergy",
            "(?:{i}|(?P<who>{kin}) (?:is|are)|we(?:'re| are)) {no}{very}allergic to (?P<what>.+)",
            ("food", "health"),
        ),
        Rule(
            "allergy",
            "(?:i|we|(?P<who>{kin})) (?:still |no longer )?(?:have|has) an? {very}(?:allergy to"
            "|intolerance (?:to|for)) (?P<what>.+)",
            ("food", "health"),
        ),
        Rule(
            "allergy",
            r"(?:i|we|(?P<who>{kin})) (?:still |no longer )?(?:have"
            r"|has) an? {very}(?P<what>[\w-]+(?: [\w-]+)?) (?:allergy|intolerance)",
            ("food", "health"),
        ),
        Rule(
            "diet",
            r"(?:{i}|(?P<who>{kin}) (?:is|are)|we(?:'re| are)) {no}{very}(?:an? )?(?:strict |committed "
            r"|lifelong |proud )?{eaters}\b",
            ("food",),
            about="diet",
        ),
        Rule(
            "diet",
            r"(?:i(?:'ve| have)? ?|we )(?:recently |just |finally )?(?:went|gone|go|became|become|turned"
            r"|been)(?: back to being)? (?:an? )?{eaters}\b",
            ("food",),
            about="diet",
        ),
        Rule(
            "diet",
            "i (?:eat|started eating|(?:have|'ve) started eating) (?:meat|fish|everything)(?: (?:again|now))",
            ("food",),
            about="diet",
        ),
        Rule(
            "diet",
            r"(?:{i}|(?P<who>{kin}) (?:is|are)) {no}{very}(?:on an? |following an? |doing "
            r"|eating )?(?:strict )?(?P<what>{limits})\b",
            ("food", "health"),
        ),
        Rule(
            "diet",
            r"i (?:follow|keep|stick to|eat) (?:an? )?(?:strict )?{eaters}\b",
            ("food",),
            about="diet",
        ),
        Rule(
            "diet",
            r"i (?:follow|keep|stick to|eat) (?:an? )?(?:strict )?(?P<what>{limits})\b",
            ("food",),
        ),
        Rule(
            "diet",
            r"i (?:never|don't|do not|can't|cannot|no longer|can no longer|only) (?:ever |really )?(?:eat"
            r"|drink|have) (?:any )?(?P<what>(?:breakfast|after|before|{foods})\b.*)",
            ("food",),
        ),
        Rule(
            "name",
            r"(?:please |just |you can |you may |and )*(?:[Cc]all|[Aa]ddress) me (?:as )?(?P<what>[A-Z][\w'-]+)\b",
            ("reply",),
            about="name",
            case=True,
        ),
        Rule(
            "name",
            r"(?:[Mm]y name is|[Mm]y name's|I go by) (?P<what>[A-Z][\w'-]+)",
            ("writing", "work"),
            about="name",
            case=True,
        ),
        Rule(
            "name",
            rf"(?:{_AFTER_GREETING})(?:I'm|I am) (?!(?:{NOT_NAMES})\b(?<!Christian)|{_NO_NAME})"
            rf"(?P<what>[A-Z][\w'-]+)(?= [A-Z][\w'-]+(?= and I |[^\w\s]|\s*+\Z)| and I |[^\w\s]|\s*+\Z)",
            ("writing", "work"),
            about="name",
            case=True,
        ),
        Rule(
            "name",
            rf"(?:I'm|I am) (?!(?:{NOT_NAMES})\b)(?P<what>[A-Z][a-z][\w'-]*)(?=(?: [A-Z][\w'-]+)?,? (?:and )?I )",
            ("writing", "work"),
            about="name",
            case=True,
        ),
        Rule(
            "role",
            "i work (?:full[- ]time |part[- ]time |remotely )?as (?:an? |the )?(?P<what>.+)",
            ("work",),
            about="role",
        ),
        Rule(
            "role",
            r"{i} (?:an?|the) (?:[\w'-]+ ){{0,4}}?(?P<what>{occupations})\b(?!['-])",
            ("work",),
            about="role",
        ),
        Rule(
            "constraint",
            r"i (?:can't|cannot|don't|do not|never|won't) (?P<what>(?:fly|drive|swim|meet|smoke|work (?:on"
            r"|at|in|before|after|past|from|nights|weekends|more)|travel"
            r"|do (?:mornings|evenings|weekends|mondays|tuesdays|wednesdays|thursdays|fridays|saturdays"
            r"|sundays)|take (?:calls|meetings)|use a car|own a car|have a car)\b.*)",
            subject="phrase",
        ),
        Rule(
            "constraint",
            "i have (?P<what>(?:type [12] )?diabetes|asthma|(?:high|low) blood pressure|celiac disease"
            "|coeliac disease|epilepsy|adhd|dyslexia|arthritis|an? (?:bad|weak) (?:back|knee|heart|shoulder)"
            "|an? pacemaker|ibs|crohn's)",
            ("health", "food"),
        ),
        Rule(
            "constraint",
            r"{i} (?:colou?r[- ]?blind|deaf|blind|dyslexic|in a wheelchair|pregnant|hard of hearing"
            r"|left-handed)\b",
            ("health", "reply"),
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:please |but |you (?:should|must) )*(?:always|never|from now on|going forward"
            r"|in (?:the )?future)[ ,]+(?:please |always |never |only |you (?:should|must) |i(?:'d like| want"
            r"| would like) you to )*(?:don't |do not |not )?(?!give up|say never|remind me of|make (?:me"
            r"|us) (?:smile|feel|laugh|happy))(?P<what>{verbs}\b.+)",
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:i(?:'d| would)? (?:like|want|need|prefer|expect) you to|make sure (?:to|you)|be sure to"
            r"|remember to) (?:always|never|only) (?P<what>{verbs}\b.+)",
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:only |don't |do not )?(?P<what>{verbs} (?:(?!when|if).)*\b(?:from now on"
            r"|going forward))\b",
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:only |don't |do not )?(?P<what>{verbs} .{{0,100}}?\b(?:whenever|every time|each time"
            r"|when) i {ask}\b.*)",
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:when(?:ever)?|every ?time|each time|any ?time) i {ask}\b(?: about"
            r"| for)?(?P<condition>[^,]{{2,80}}), (?:please |then |always |never |do not "
            r"|don't )*(?P<what>{verbs}\b.+)",
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:answer|reply|respond|speak|talk)(?: (?:to )?me)?(?: back)? (?:only )?in "
            r"(?P<what>{languages}|metric|imperial|plain|simple|short|bullet|markdown|one|two|full|lower"
            r"|upper)\b.*",
            ("reply",),
            subject="phrase",
            lasting=False,
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:answer|reply|respond)(?: (?:to )?me)? (?P<what>briefly|concisely|shortly|formally"
            r"|informally|casually)\b.*",
            ("reply",),
            about="length or tone",
            lasting=False,
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:keep|make) (?P<what>(?:(?:all |your |every )+(?:answer|reply|response|explanation)"
            r"|(?:all |your |the )*(?:answers|replies|responses|explanations|messages))\b.+)",
            ("reply",),
            subject="phrase",
            lasting=False,
        ),
        Rule(
            "instruction",
            r"i(?:'d| would)? (?:like|want|need|prefer) (?P<what>(?:all |your |the )*(?:answers|replies|responses"
            r"|explanations)(?: to be|,)? .+)",
            ("reply",),
            subject="phrase",
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:only )?use (?:the )?(?P<what>(?:metric|imperial|si|celsius|fahrenheit|kilomet\w+"
            r"|miles|british|american|uk|us|24[- ]hour|12[- ]hour|formal|informal|plain|simple)\b.*)",
            ("reply",),
            subject="phrase",
            lasting=False,
        ),
        Rule(
            "instruction",
            r"(?:please,? )?(?:always |only )?(?P<what>(?:metric|imperial|si) units|(?:24|12)[- ]hour (?:clock|times?)"
            r"|(?:all )?prices in \w+(?: unless i say otherwise)?)(?:,? please)?\W*$",
            ("reply",),
            subject="phrase",
            lasting=False,
        ),
        Rule(
            "instruction",
            r"(?:please )?(?:don't|do not|stop|never|avoid|no more) (?:ever )?(?P<what>(?:us(?:e|ing)"
            r"|add(?:ing)?|includ(?:e|ing)|send(?:ing)?) (?:any |so many |the )?(?:emojis?|emoticons|markdown"
            r"|bullet|bullets|jargon|tables|exclamation|headings|disclaimers|slang|em dashes)\b.*)",
            ("reply",),
            subject="phrase",
            lasting=False,
        ),
        Rule(
            "preference",
            r"(?:i|we) {lately}prefer(?:red)? (?!not to\b|to (?:go|be|do|have)\b|that\b|its?\b|this\b"
            r"|these\b|those\b|if\b"
            r"|the (?:first|second|third|last|latter|former)\b)(?:to )?(?P<what>.+)",
        ),
        Rule(
            "preference",
            "(?:i|we) {lately}(?:favou?r) (?P<what>.+)",
        ),
        Rule(
            "preference",
            "my (?:personal |strong |general )?preference is (?:for |to )?(?P<what>.+)",
        ),
        Rule(
            "preference",
            r"my (?:all[- ]time )?favou?rite (?P<about>[\w -]{{2,30}}?) (?:is|are) (?P<what>.+)",
        ),
        Rule(
            "preference",
            r"i (?:(?:really|absolutely|just|personally|still) )*(?:hate|dislike|detest|can't stand"
            r"|cannot stand|don't like|do not like|am not a fan of|'m not a fan of) (?!to (?:see|say|ask|break"
            r"|be)\b|when\b|that\b|its?\b|this\b|these\b|those\b|how\b|him\b|her\b|them\b|you\b|what\b"
            r"|the (?:idea|way|fact"
            r"|thought)\b)(?P<what>.+)",
        ),
        Rule(
            "preference",
            r"{i} not (?:really )?(?:a (?:big |huge )?fan of|into|keen on|fond of) (?!that\b|it\b|this\b"
            r"|the (?:idea|way)\b)(?P<what>.+)",
        ),
        Rule(
            "preference",
            "i (?:(?:never|only|exclusively) (?:use|buy|fly|travel|stay|book|order|wear|drive|cook|drink|code"
            "|program|listen to|watch|read|shop)|(?:always|usually) (?:use|fly|buy|book|order|wear|code"
            "|program|travel)) (?P<what>.+)",
            subject="phrase",
        ),
    ),
    lead_ins=(
        "and but so also well hi hey hello oh okay ok yes yeah yep no nope please remember that note fyi btw "
        "by the way just as because since though although while actually personally generally usually "
        "honestly for context me myself however plus keep in mind reminder one more thing first second "
        "finally again then anyway sorry thanks thank right sure great cool now today lately recently "
        "nowadays these days especially considering given quick additionally furthermore moreover otherwise "
        "still to be honest a heads up"
    ),
    clause=(
        r"[.,;:!?\n()\u2014\u2013]+\s*|\s-\s|\b(?:and|but|so|because|since|as|although|though|while"
        r"|given that|considering(?: that)?)\s+"
    ),
    ends=(
        r"[.;!?\n()\u2014]|,? (?:and|but|so) (?:i|we|can|could|what|how|do|is|are|should|would|will|please"
        r"|my|he|she|it|they|that)\b|,? (?:but|because|since|so that|considering|given|especially) "
        r"|, (?:and |but |so )?(?:can|could|what|how|do|does|is|are|should|would|will|which|where|when|who"
        r"|why|so|i|i'(?:m|ve|d|ll)|we|please|like|especially|rather|you|by|any|maybe|thanks|ok|okay|right"
        r"|it|he|she|they|my|this|that|these|if|let|tell|suggest|recommend|give|show|help|not)\b"
    ),
    supposes=(
        r"\b(?:if|whether|suppose|supposing|imagine|pretend|hypothetically|assuming|unless|would you|said"
        r"|says|told me)\b"
    ),
    condition=(
        r"(?:,? (?:when(?:ever)?|if|every time|each time|any time|anytime) i (?:ask|asked|say|mention"
        r"|request|talk|inquire|enquire|message|send|share|type|write)\b(?: (?:you|about|for|how"
        r"|to|a question|questions|something|anything|on|regarding))*)"
    ),
    subjects={
        f"\\b(?:in|speak|use|write) (?:{_LANGUAGES})\\b": "language",
        r"\b(?:metric|imperial|si) (?:units?|system|measure\w*)\b|\bin (?:metric|imperial)\b": "units",
        r"\b(?:celsius|fahrenheit)\b": "temperature",
        r"\b(?:british|american|uk|us) (?:english|spelling)\b": "spelling",
        r"\b(?:24|12)[- ]hour\b": "clock",
        r"\b(?:answers?|repl(?:y|ies)|responses?|explanations?|messages)\b.*\b(?:short|shorter|brief"
        r"|concise|long|longer|detailed|in[- ]depth|succinct|simple|terse)\b": "length",
        r"\bemojis?\b": "emojis",
        r"\bdates?\b.*\b(?:format|in)\b|\bformat dates?\b": "dates",
    },
    light=(
        "using use to the a an my having have taking doing going being getting something anything"
        " more very really when it comes for on"
    ),
    verbs=_VERBS.replace("|", " "),
    generic=(
        "detail information help option question topic thing anything something issue specific problem implement way"
        " advice idea example feature"
    ),
    tasks={
        "food": (
            "food eat dinner lunch breakfast brunch meal recipe cook cooking restaurant snack dish"
            " menu ingredient bake baking"
            " cake dessert cuisine diet drink beverage bbq barbecue picnic potluck appetizer grocery groceries supper"
            " meat fish pork beef chicken lamb seafood shellfish dairy egg gluten nut peanut wheat"
            " carb soy cheese milk alcohol"
            " coffee caffeine tea wine beer spicy cilantro pizza salad soup pasta cafe catering"
            " cookie sandwich vegan vegetarian takeaway takeout nutrition allergen"
        ),
        "travel": (
            "travel trip flight fly hotel vacation holiday itinerary airport airline seat train"
            " destination hostel airbnb"
            " luggage visa sightseeing tour cruise abroad backpack road drive car rental"
            " accommodation passport resort"
        ),
        "health": (
            "health healthy exercise workout gym fitness sleep medicine medication doctor therapy"
            " vitamin yoga run running"
            " jog weight injury pain stress meditation meditate self-care wellness skincare"
            " supplement stretch marathon"
        ),
        "writing": (
            "write writing essay email letter draft paragraph story poem blog article proofread edit editing rewrite"
            " citation reference cite resume cv cover headline tone wording manuscript novel report thesis paper post"
            " caption speech bullet portfolio summary"
        ),
        "code": (
            "code coding program programming function class library libraries api database sql python"
            " javascript typescript"
            " java rust framework bug debug deploy deployment app server cache caching persist"
            " persistence persistent store"
            " storage async asynchronous synchronous event queue backend frontend html css react flask django docker"
            " kubernetes git repository endpoint schema query script test testing unit module package dependency"
            " dependencies refactor algorithm compile authentication login pipeline ci type indent"
            " tabs software terminal"
            " website webpage web page layout bootstrap component implementation transaction"
            " microservice latency error log"
        ),
        "schedule": (
            "schedule meeting calendar appointment reminder deadline agenda availability morning evening afternoon"
            " weekend monday tuesday wednesday thursday friday saturday sunday routine plan planner task productivity"
            " organize organise call week day time"
        ),
        "money": (
            "money budget expense expenses invest investment saving savings bank loan mortgage credit"
            " debt tax spend cost"
            " price salary retirement finance financial stock stocks fund crypto insurance subscription"
        ),
        "gifts": "gift present birthday anniversary christmas wedding surprise party",
        "media": (
            "movie film book novel series show music song playlist podcast game audiobook read watch"
            " listen author genre"
            " album band streaming documentary anime fiction e-book ebook concert"
        ),
        "learning": (
            "learn learning study explain explanation teach lesson course exam homework practice"
            " solve proof math maths"
            " equation concept tutorial step-by-step quiz calculate understand example examples method probability"
        ),
        "work": (
            "career job interview resume cv salary promotion colleague boss manager team client"
            " hiring recruit linkedin"
            " portfolio negotiate freelance business startup presentation cover hire candidate workplace patent"
        ),
        "shopping": (
            "buy shop shopping purchase brand shoe sneaker clothes outfit jacket dress wear laptop phone headphone"
            " gadget product color colour size style"
        ),
        "home": "home house apartment garden furniture decor clean cleaning laundry paint kitchen bedroom pet plant",
        "reply": (
            "source link citation cite table step-by-step "
            "answer reply respond response explanation emoji tone units metric imperial celsius"
            " fahrenheit english german"
            " french spanish italian portuguese language concise brief formal informal markdown"
            " bullet spelling jargon"
        ),
    },
    hints=(
        "allerg|intoleran|prefer|favo|vegan|tarian|omnivore|always|never|from now on|going forward| future"
        "|when i |ever i |time i |call me|address me|my name|i go by|i work|i can't|i cannot|no longer|i don't"
        "|i do not|i won't|hate|dislike|detest|i only|i usually|i exclusively|i'm a|i am a|i'm the|i am the"
        "|fan of|not into|really into|keen on|fond of|blind|deaf|dyslexi|wheelchair|pregnant|hard of hearing"
        "|left-handed|eating |i eat |i follow|i keep|i stick|asthma|blood pressure|epilepsy|adhd|arthritis"
        "|pacemaker|have ibs|crohn|have a bad |have a weak |answer|reply|replies|respond|response|speak "
        "|talk to me|talk in|explanation|messages|emoji|emoticon|markdown|bullet|jargon|headings|disclaimers"
        "|slang|em dash|exclamation|metric|imperial|use si |celsius|fahrenheit|kilom|use miles|use british"
        "|use american|use uk|use us |24-hour|24 hour|12-hour|12 hour|si units|prices in|formal"
        "|use plain|use simple|halal|kosher|keto|gluten|dairy"
        "|lactose|paleo|teetotal|diabet|liac|low-|low carb|low sugar|low sodium|low fat"
        + "| and i |, i "
        + "".join(f"|{greeting} i{verb}" for greeting in _GREETINGS for verb in ("'m", " am"))
    ),
    asks_for=(
        (r"\b(?:my name|who (?:am i|i am)|you call me)\b", ("name",)),
        (
            r"\bmy (?:job|profession|occupation|work|role)\b|\bwhat do i do(?: for (?:a living|work))?\W*$"
            r"|\bwho am i\b",
            ("role",),
        ),
        (r"\bmy allerg\w+|\bam i allergic\b|\bany allerg\w+", ("allergy",)),
        (
            r"\bmy diet\w*|\bam i (?:an? )?(?:vegan|vegetarian)\b|\b(?:can't|cannot|don't|mustn't|shouldn't) i eat\b"
            r"|\bi (?:can't|cannot|don't|mustn't|shouldn't|may not) eat\b"
            r"|\b(?:is|are|would)\b[^.?!]{0,60}\b(?:ok|okay|safe|fine|suitable|all ?right) for (?:me|us)\b",
            ("allergy", "diet"),
        ),
        (
            r"\bmy (?:preferences|tastes|habits|likes)\b|\bwhat do i (?:like|prefer|dislike|hate)\W*$",
            ("preference", "diet"),
        ),
        (
            r"\b(?:know|remember|learned|learnt|noted|noticed|stored|saved)\b[^.?!]{0,30}\babout (?:me|us)\b"
            r"|\b(?:tell me about|describe) (?:me|myself)\b|\bmy profile\b",
            KINDS,
        ),
    ),
    starts=(
        f"i i'd i'm i've we we're my please always never from going in you make be remember just when"
        f" whenever every each any"
        f" anytime only don't do stop avoid no but and {_VERBS.replace('|', ' ')} recently 24-hour 24 12-hour 12 metric"
        f" imperial si prices all"
    ),
    request=(
        r"(?:^|[.!?\n,;:][^\S\n]*+|\b(?:and|please|then|now|to|me)\s+)(?:suggest|recommend|advise|plan|write"
        r"|draft|create|make|build|implement|design"
        r"|cook|prepare|organi[sz]e|choose|pick|find|show|give|walk|explain|describe|summari[sz]e"
        r"|set up|compare|list|book|order|improve"
        r"|fix|help|propose|outline|provide|generate|develop|review|edit|rewrite|translate"
        r"|tell me (?:how|about|what|which)|calculate|solve|optimi[sz]e|teach|schedule|convert)\b"
        r"|\bhow (?:should|do|can|could|would|might|to)\b|\bwhat (?:should|could|can|would|do i need"
        r"|are (?:some|good|the)|is (?:the|a good)|kinds? of|type)\b"
        r"|\bwhat \w+(?: \w+)? (?:should|could|can|would|do you|to)\b|\b(?:which|where"
        r"|when) \w* ?(?:should|could|can|would|do i)\b"
        r"|\b(?:can|could|would|will) you\b|\b(?:can|may|could|should) (?:i|we)\b|\bany (?:good "
        r"|other )?(?:ideas?|suggestions?|tips|recommendations?|advice)\b"
        r"|\bi(?:'m| am) (?:\w+ )?(?:planning|looking|trying|thinking|preparing|about to|going to|considering)\b"
        r"|\b(?:i|we) (?:need|want|would like|have to)\b|\bi(?:'d| would) like\b|\blet's\b"
        r"|\bwhat about\b|\bhow about\b"
    ),
    past=(
        r"^\W*(?:and |so |but )?(?:what|when|where|who|whom|whose|why|how|which|did|was|were|had|has|have)\b[^.?!]*"
        r"\b(?:did|was|were|had|has|have (?!to\b)\w+(?:ed|en)|mentioned|said|told)\b"
        r"|\b(?:(?:i|we|you) brought up|(?:has|have) (?:i|we|my|our)\b|did (?:i|we|you)|(?:i|we"
        r"|you) (?:discussed|talked|mentioned|said"
        r"|told|asked|recommended|suggested|described)|(?:our|this) (?:conversation|chat|discussion"
        r"|talk)s?|remind me)\b"
        r"|(?:\A|(?<=\n))(?>.*?\b(?:summar\w+|overview)\b)(?>.*? (?:my|our) ).*(?:ed|own)\b"
    ),
)  # fmt: skip
