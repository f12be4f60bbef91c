"""How people say in English that something is so, has changed or has happened; data for `statements`."""

import re

LIGHT = """
able actual actually ago all already alway always another anymore around away back
became become been began begin big but came come
day days decide decided done everybody everyone far finally first full gave get give go goes going gone good got great
happen heads insist insisted keep kept know last lately let like little long longer look lot made make many mean mind
moment month more most move much name named need new news next nice now number often old one other own picked plan
planned put quite really right said same say see set since small sorry start started still stuff such supposed sure
switch take taken tell term than thing think time times today told took total turn turned update use used usually want
wanted way week went whole will year years
"""
"""Words that do not say what a sentence is about."""

CHANGED = r"""
instead|correction|corrected|no\ longer|any\ ?(?:more|longer)|not\b.{0,40}\bbut|in\ place\ of|rather\ than|after\ all
|changed|changing|changes?\ (?:of|in|on|to)|change(?=:)|moved|pushed\ (?:back|to|until|out)|postponed?|delayed
|reschedule[ds]?|relocated?|shift(?:ed)?\ (?=the|it|my|our)
|rebooked|rearranged|brought\ forward|switched|swapped|replace[ds]?|renamed|migrated|upgraded
|downgraded|ported|roll(?:ed)?|raised?|lowered|cut\ (?:back|down)|bumped|increased|reduced|extended|shortened
|(?:went|gone|go|came|come|going|is|up|down)\ (?:up|down|over)\ (?:to|from)|put\b.{0,40}\b(?:up|down)
|gone\ (?:up|down|over)|took\ over|became|become|turned\ into|traded\ in|cancell?ed|dropped(?!\ off)|quit
|gave\ up|given\ up|stopped|revised|adjusted|updated
|let's\ make\ (?:it|that|the|my|our)|^make\ (?:it|that)|on\ second\ thoughts?|in\ the\ end
|(?:put|switched|moved|swapped)\ (?:me|us)\ (?:on|onto|in|to)|sold|gave\ away|got\ rid\ of|(?:broke|split)\ up
|fell\ through
|(?:scrap|strike|scratch)\ (?:that|it|what)|^forget|i\ (?:mean|meant)|mixed\ .{0,12}up|misread|got\ .{0,12}wrong
|was\ wrong|my\ mistake|agreed|decided|put\ off
"""
"""What a speaker says who changes or corrects what was said before."""

LATER = r"""
now|new|already|today|these\ days|nowadays|lately|currently|at\ the\ moment|by\ now
|from\ (?:now|today|this|next|then)|from\ \w+\ on|as\ of
|since\ (?:the|then|this|last|spring|summer|autumn|winter|january|february|march|april|may|june|july
|august|september|october|november|december)
|actually|updated?|sorry|oops|wait|again|heads\ up|again|turn(?:s|ed)\ out|this\ (?:year|season|term)
"""
"""What people say about what is new. They also say it about much else."""

GONE = r"""
no\ longer|not|\w+n['\u2019]t|instead\ of|rather\ than|stopped|gave\ up|given\ up|quit|cancell?ed
|dropped(?!\ off)|drop(?!\ off)|forget
|scrap|replaced|threw|thrown|without|no\ more|sold|(?:down|up|over|away|changed|switched|moved)\ from|no
"""
"""What comes before something that is not so any more."""

PAST = r"""
used\ to|was|were|had|did|before|previously|formerly|originally|back\ then|at\ first|ago|yesterday
|last\ (?:week|month|year|night)|ran|spent|went|bought|met|saw|ate|(?<!'ve\ )(?<!have\ )got|made|came|sent|found|said
|left|won|lost|wrote|drove|flew|slept|felt|thought|began|read|took|fixed|finished|visited|watched|heard|knew|paid|sang
|sold|stood|taught|understood|gave|held|grew|cost\ me
"""
"""What tells of something that happened, instead of something that is so."""

PLANS = (
    r"booked|planned|picked|chose|chosen|decided|scheduled|set|agreed|settled|arranged|reserved|named|called|supposed"
    r"|married|based|divorced|signed\ up|enrolled|allocated|estimated|expected|allowed|required|located|limited|capped"
    r"|increased|reduced|extended|improved|raised|reached|ordered|planted|parked|stored|installed|hired|appointed"
    r"|assigned|registered|subscribed"
)
"""Verbs in the past with which people tell what is so from then on."""

DOUBTS = (
    r"might|maybe|perhaps|if|would|\w+['\u2019]d|could"
    r"|considering|thinking\ of|thinking\ about|wish|hope|wonder(?:ing)?|should\ i"
)

KIN = """
aunt boss boyfriend brother colleague cousin dad daughter father flatmate friend girlfriend grandfather grandma
grandmother grandpa guy husband mom mother mum neighbor neighbour nephew niece parents partner roommate sister son
uncle wife
"""
"""Whom a sentence may be about instead of the speaker."""

CALENDAR = """
apr april aug august dec december feb february friday fridays jan january jul july jun june mar march midnight monday
mondays noon nov november oct october saturday saturdays sep sept september sunday sundays thursday thursdays tomorrow
tonight tuesday tuesdays wednesday wednesdays
"""

COUNTED = """
daily eight eighteen eighty eleven every fifteen fifty five forty four fourteen hundred million monthly nine nineteen
ninety once seven seventeen seventy six sixteen sixty ten thirteen thirty thousand three twelve twenty twice two
weekly zero
"""

TELL_APART = """
first second third fourth fifth sixth seventh eighth ninth tenth last next other to from before after in out up down
"""
"""Words that tell things of one kind apart, by their number or by their direction."""

WISHES = """
enjoy hate like likes love loves must need needs should want wants
"""
"""What people say of what they wish and like: it adds up, unless they say that it has changed, or how much of it."""

SAYS = """
am be been can cannot could did do does don't get gets had have he i it makes must needs shall she should takes they
there this we would you
"""
"""Verbs and pronouns, beside copulas, with which a clause says something of what comes before, or begins another."""

MEANT = ((re.compile(r"\b(?:i|we)\b.{0,20}\b(?:moved|relocated)\b.{0,8}\b(?:to|into)\b", re.IGNORECASE), "live"),)
"""What a sentence says in other words, with the term that it stands for."""
