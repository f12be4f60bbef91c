"""English words for the same: of one sense, of two spellings, and those in which people ask for what they told."""

RELATIVES = """
weigh weight, car vehicle automobile, apologise apologize, authorise authorize, behaviour behavior, cancelled
canceled, catalogue catalog, centre center, colour color, cosy cozy, customise customize, defence defense, dialogue
dialog, emphasise emphasize, favour favor, favourite favorite, fibre fiber, flavour flavor, grey gray, harbour harbor,
honour honor, humour humor, jewellery jewelry, kilometre kilometer, labour labor, licence license, litre liter,
memorise memorize, metre meter, mum mom, neighbour neighbor, neighbourhood neighborhood, odour odor, organisation
organization, organise organize, practise practice, prioritise prioritize, programme program, pyjamas pajamas, realise
realize, recognise recognize, rumour rumor, theatre theater, travelled traveled, travelling traveling, yoghurt yogurt
"""

ANSWERED_BY = """
job profession occupation career: job work employed employer occupation profession career
colleague coworker: colleague coworker team
boss manager: boss manager supervisor
salary income: salary income earn wage paid
birthday: birthday born birthdate
age: born birthday turned old
height: tall cm feet height
weight: weigh kilo kg pound weight
pet: pet cat dog puppy kitten hamster rabbit parrot
child kid: child kid son daughter baby toddler
sibling: brother sister twin
parent: mother father mum mom dad
spouse: wife husband married
partner: partner wife husband girlfriend boyfriend married
wedding marriage: wedding marry married marriage
car: car vehicle van drive
vehicle: vehicle car van truck drive
bicycle: bicycle bike
phone: phone mobile cell
flat apartment: flat apartment studio rent landlord
rent: rent landlord lease
address: live address street moved
hometown: born raised grew hometown
doctor: doctor physician gp
illness disease: diagnosed ill illness disease
medication medicine: medication medicine pill tablet prescribed
allergy: allergic allergy intolerant
diet: vegetarian vegan diet halal kosher
book: book novel read
film movie: film movie watched
holiday vacation: holiday vacation trip
teacher: teacher teach taught
teach: teach teacher taught
university college: university college studied degree graduate
password passcode pin: password passcode pin code
expensive cheap price: cost price paid pay
"""

ASKED_AS = (
    (r"\bdo(?:ing)? for a living\b", "job"),
    (r"\bhow old\b", "age"),
    (r"\bhow tall\b", "height"),
    (r"\bhow heavy\b", "weight"),
    (r"\bwho (?:am i|i am)\b", "my name"),
)
