"""Made-up conversations in which somebody changes what was said before, among filler and other speakers.

`TOPICS` are written as people speak. Those of `HELD_OUT` were not looked at while the rules of
`shared_core.recall.changes` were written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from shared_core import Message

__all__ = ["HELD_OUT", "SEEN", "TOPICS", "Change", "Topic", "changes", "conversation", "filler"]


@dataclass(frozen=True)
class Topic:
    """Something that has one value at a time.

    Attributes:
        values: the values it takes, one after the other, from any of them on.
        before: how somebody says it first; `{v}` is the value.
        after: how somebody says that it has changed; `{old}` is the value before.
        asks: questions for the value of today.
        history: questions for the value before.
        others: how another person speaks of his or her own.
    """

    values: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    asks: tuple[str, ...]
    history: tuple[str, ...]
    others: tuple[str, ...]


SEEN = (
    Topic(
        ("2,800", "3,200", "4,000", "3,650"),
        ("The budget for the kitchen is {v} euros.", "We have {v} for the kitchen, that's the whole budget.",
         "Our kitchen budget is {v} all in."),
        ("The budget for the kitchen is {v} now.", "Actually, the kitchen budget is {v}.",
         "We talked it over and raised the kitchen budget to {v}.", "Correction: kitchen budget is {v}, not {old}.",
         "Small change on the kitchen: the budget went up to {v}."),
        ("What is the budget for the kitchen?", "How much is our kitchen budget?"),
        ("What was the kitchen budget before?", "What was the original budget for the kitchen?"),
        ("My own kitchen had a budget of {v}.", "My budget for the kitchen is {v}."),
    ),
    Topic(
        ("Tuesday at 10", "Friday at 3", "Monday at 8:30", "Thursday at noon"),
        ("My dentist appointment is on {v}.", "I've got the dentist {v}.", "I booked the dentist for {v}."),
        ("The dentist moved my appointment to {v}.", "My dentist appointment is on {v} now.",
         "They called: the dentist is {v} instead.", "I had to reschedule the dentist, it's {v}.",
         "Sorry, I mixed that up, the dentist appointment is {v}."),
        ("When is my dentist appointment?", "When do I have to be at the dentist?"),
        ("When was the dentist appointment before it was moved?", "When was my dentist appointment originally?"),
        ("My dentist appointment is on {v}.", "I'm at the dentist {v}, too."),
    ),
    Topic(
        ("Martina", "Ravi", "Joanne", "Pieter"),
        ("My manager is {v}.", "My manager at work is called {v}.", "{v} is my manager."),
        ("My manager is {v} now.", "I have a new manager, {v}.", "Big news: {v} took over as my manager.",
         "{v} is my manager since the reorganisation.", "{old} left, so my new manager is {v}."),
        ("Who is my manager?", "What's the name of my manager?"),
        ("Who was my manager before?", "Who used to be my manager?"),
        ("My manager is {v}, by the way.", "{v} is my manager."),
    ),
    Topic(
        ("oat milk", "almond milk", "soy milk", "no milk at all"),
        ("I take my coffee with {v}.", "I like {v} in my coffee best.", "For coffee I prefer {v}."),
        ("I take my coffee with {v} these days.", "I switched to {v} in my coffee.",
         "I've gone over to {v} in my coffee.", "Actually I prefer {v} in my coffee now.",
         "I don't take {old} in my coffee any more, I have {v}."),
        ("What do I take in my coffee?", "How do I like my coffee?"),
        ("What did I take in my coffee before?", "What did I use to have in my coffee?"),
        ("I take my coffee with {v}.", "For me it's coffee with {v}."),
    ),
    Topic(
        ("Lyon", "Bern", "Ghent", "Turin"),
        ("I live in {v}.", "I'm living in {v}.", "We live in {v}, near the station."),
        ("I moved to {v} last month.", "I live in {v} now.", "We've moved, we live in {v}.",
         "I no longer live in {old}, I'm in {v}.", "I'm not living in {old} any more, we live in {v}."),
        ("Where do I live?", "Which city do I live in?"),
        ("Where did I live before?", "Where did I use to live?"),
        ("I live in {v} myself.", "We live in {v}."),
    ),
    Topic(
        ("4471", "9030", "1286", "5517"),
        ("The code for the bike shed is {v}.", "The bike shed opens with {v}.", "Bike shed code: {v}"),
        ("They changed the bike shed code to {v}.", "New code for the bike shed: {v}.",
         "The bike shed code is {v} from today.", "The code of the bike shed isn't {old} any more, it is {v}.",
         "Oops, the bike shed code is {v}, I misread it."),
        ("What is the code for the bike shed?", "What's the bike shed code?"),
        ("What was the old code of the bike shed?", "What was the bike shed code at first?"),
        ("Our bike shed has the code {v}.", "The code for the bike shed at our place is {v}."),
    ),
    Topic(
        ("14 May", "2 June", "the 20th of June", "July 1"),
        ("The launch of the app is on {v}.", "We launch the app on {v}.", "The app launch is planned for {v}."),
        ("The app launch was pushed to {v}.", "The launch of the app is on {v} now.",
         "We had to postpone the app launch to {v}.", "New date for the app launch: {v}.",
         "The app launch won't be on {old}, we go for {v}."),
        ("When is the launch of the app?", "When do we launch the app?"),
        ("When was the app launch first planned?", "What was the date of the app launch before?"),
        ("Our app launch is on {v}.", "We launch our app on {v}."),
    ),
    Topic(
        ("vegetarian", "vegan"),
        ("I'm {v}, so no meat for me.", "I eat {v}.", "I am {v}."),
        ("I'm {v} now.", "I've become {v}.", "By the way, I am {v} these days.", "I'm not {old} any more but {v}.",
         "I changed my diet: I eat {v}."),
        ("Am I vegetarian or vegan?", "What is my diet, am I vegan?"),
        ("Was I vegan or vegetarian before?", "Which diet did I have originally, vegan or vegetarian?"),
        ("I'm {v} as well.", "I eat {v}."),
    ),
    Topic(
        ("12", "15", "9", "20"),
        ("There are {v} guests for the birthday dinner.", "{v} guests are coming to the birthday dinner.",
         "I count {v} guests for the birthday dinner."),
        ("We're {v} guests for the birthday dinner now.", "Two changes of plan: {v} guests at the birthday dinner.",
         "Make it {v} guests for the birthday dinner.", "It's {v} guests for the birthday dinner after all.",
         "Not {old} but {v} guests come to the birthday dinner."),
        ("How many guests are coming to the birthday dinner?", "How many guests do we have for the birthday dinner?"),
        ("How many guests was the birthday dinner first planned for?",
         "How many guests did the birthday dinner have before the change?"),
        ("I have {v} guests for a birthday dinner myself.", "{v} guests come to my birthday dinner."),
    ),
    Topic(
        ("green", "dark blue", "white", "yellow"),
        ("We'll paint the hallway {v}.", "The hallway will be {v}.", "I want the hallway in {v}."),
        ("We decided on {v} for the hallway.", "The hallway will be {v} instead.",
         "I changed my mind, I want the hallway in {v}.", "Let's make the hallway {v}, not {old}.",
         "On second thought, we'll paint the hallway {v}."),
        ("What colour do we paint the hallway?", "Which colour will the hallway be?"),
        ("What colour did I want for the hallway at first?", "What colour was the hallway going to be before?"),
        ("I paint our hallway {v}.", "Our hallway will be {v}."),
    ),
    Topic(
        ("Postgres", "MySQL", "SQLite", "MongoDB"),
        ("The project uses {v} as its database.", "Our database is {v}.", "We run {v} for the database."),
        ("We migrated the database to {v}.", "The project uses {v} as its database now.",
         "We dropped {old}; the database is {v}.", "The database is no longer {old}, it's {v}.",
         "Update: our database is {v}."),
        ("Which database does the project use?", "What is our database?"),
        ("Which database did the project use before?", "What was our database originally?"),
        ("At my company the database is {v}.", "Our database is {v}."),
    ),
    Topic(
        ("coffee", "green tea", "cocoa", "black tea"),
        ("I drink {v} in the morning.", "In the morning I always drink {v}.", "My morning drink is {v}."),
        ("I stopped drinking {old} in the morning, it's {v} now.", "In the morning I drink {v} now.",
         "My morning drink is {v} lately.", "I don't drink {old} in the morning anymore, only {v}.",
         "I replaced my morning {old} with {v}."),
        ("What do I drink in the morning?", "What's my morning drink?"),
        ("What did I drink in the morning before?", "What did I use to drink in the morning?"),
        ("I drink {v} in the morning.", "My morning drink is {v}."),
    ),
)  # fmt: skip
"""Topics that the rules may be written for."""

_FIRST_HELD_OUT = (
    Topic(
        ("850", "910", "1,020", "975"),
        ("The rent for the flat is {v} a month.", "I pay {v} rent for the flat.", "Rent's {v} for the flat, heating in."),
        ("The landlord put the rent for the flat up to {v}.", "Rent for the flat has gone up, it's {v} now.",
         "From this month I pay {v} rent for the flat.", "The rent for the flat isn't {old} anymore but {v}.",
         "I got that wrong, the rent for the flat is {v}."),
        ("How much is the rent for the flat?", "What rent do I pay for the flat?"),
        ("How much was the rent for the flat before?", "What rent did I pay for the flat at the beginning?"),
        ("I pay {v} rent for my flat.", "The rent for our flat is {v}."),
    ),
    Topic(
        ("7:15", "6:50", "9:05", "8:40"),
        ("Our flight to Oslo leaves at {v}.", "The Oslo flight is at {v}.", "The flight to Oslo departs at {v}."),
        ("The airline changed our Oslo flight, it leaves at {v}.", "The flight to Oslo is delayed until {v}.",
         "Our flight to Oslo now leaves at {v}.", "Wait, the Oslo flight is at {v}.",
         "They've rebooked us: the Oslo flight departs at {v}."),
        ("What time does our flight to Oslo leave?", "When does the Oslo flight depart?"),
        ("When was the Oslo flight supposed to leave originally?", "What time was the flight to Oslo before the change?"),
        ("My flight to Oslo leaves at {v}.", "I'm on the Oslo flight at {v}."),
    ),
    Topic(
        ("Bruno", "Kiki", "Pepper", "Oscar"),
        ("We'll call the puppy {v}.", "The puppy's name is {v}.", "Our puppy is called {v}."),
        ("We renamed the puppy {v}.", "The kids insisted, the puppy is called {v} now.",
         "Forget {old}, the puppy's name is {v}.", "The puppy has another name: {v}.",
         "In the end we named the puppy {v}."),
        ("What is the puppy called?", "What's the puppy's name?"),
        ("What was the puppy called before?", "What was the puppy's first name?"),
        ("Our puppy is called {v}.", "I call my puppy {v}."),
    ),
    Topic(
        ("Hotel Aurora", "the Grand Plaza", "Casa Verde", "Hotel Lindner"),
        ("We stay at {v} in Porto.", "I've booked {v} for Porto.", "In Porto our hotel is {v}."),
        ("We've changed hotels in Porto: it's {v}.", "In Porto we stay at {v} instead.",
         "I cancelled {old} and booked {v} for Porto.", "{old} was full, so in Porto we're at {v}.",
         "Our hotel in Porto is {v} now."),
        ("Which hotel do we stay at in Porto?", "What is our hotel in Porto?"),
        ("Which hotel in Porto did we have before?", "Which hotel had I booked first for Porto?"),
        ("When I'm in Porto, I stay at {v}.", "My hotel in Porto is {v}."),
    ),
    Topic(
        ("Wednesdays", "Mondays", "Saturdays", "Thursdays"),
        ("Choir practice is on {v}.", "We have choir practice on {v}.", "I sing in the choir, practice is {v}."),
        ("Choir practice has moved to {v}.", "Choir practice is on {v} from now on.",
         "They switched choir practice to {v}.", "Choir practice isn't {old} any longer, it's {v}.",
         "Heads up, choir practice is {v} this term."),
        ("Which day is choir practice?", "When is choir practice?"),
        ("Which day was choir practice before?", "When did choir practice use to be?"),
        ("My choir practice is on {v}.", "We have choir practice on {v}."),
    ),
    Topic(
        ("under the flower pot", "in the garage", "with Mrs Weber", "in the letter box"),
        ("The spare key is {v}.", "I keep the spare key {v}.", "You'll find the spare key {v}."),
        ("I moved the spare key, it's {v}.", "The spare key is {v} now.", "I keep the spare key {v} these days.",
         "The spare key isn't {old} anymore, look {v}.", "I've put the spare key {v} instead."),
        ("Where is the spare key?", "Where do I keep the spare key?"),
        ("Where was the spare key before?", "Where did I keep the spare key at first?"),
        ("My spare key is {v}.", "I keep our spare key {v}."),
    ),
    Topic(
        ("Spanish", "Italian", "Korean", "Swedish"),
        ("I'm learning {v} in the evenings.", "I take {v} lessons in the evenings.", "In the evenings I study {v}."),
        ("I gave up {old}, I'm learning {v} in the evenings.", "I'm learning {v} in the evenings now.",
         "Instead of {old} I take {v} lessons in the evenings.", "In the evenings I've started to study {v} instead.",
         "I quit the {old} lessons and take {v} lessons in the evenings."),
        ("Which language am I learning in the evenings?", "What do I study in the evenings?"),
        ("Which language was I learning in the evenings before?", "What did I study in the evenings originally?"),
        ("I'm learning {v} in the evenings.", "In the evenings I study {v}."),
    ),
    Topic(
        ("68 kilos", "71 kilos", "66 kilos", "73 kilos"),
        ("My weight is {v}.", "I weigh {v}.", "The scales say I weigh {v}."),
        ("I weigh {v} now.", "My weight is {v} at the moment.", "I'm up and down; I weigh {v} today.",
         "My weight is down from {old}, now {v}.", "I weighed myself again: my weight is {v}."),
        ("How much do I weigh?", "What is my weight?"),
        ("How much did I weigh before?", "What was my weight at first?"),
        ("I weigh {v}.", "My weight is {v}."),
    ),
    Topic(
        ("Dr. Haas", "Dr. Okafor", "Dr. Lindqvist", "Dr. Moreau"),
        ("My doctor is {v}.", "I see {v} for my knee, that's my doctor.", "{v} is my doctor."),
        ("I changed doctors, my doctor is {v}.", "My doctor is {v} from now on.", "{old} retired, {v} is my doctor now.",
         "I'm with another doctor, {v}.", "My doctor isn't {old} any more, I go to {v}."),
        ("Who is my doctor?", "What is my doctor's name?"),
        ("Who was my doctor before?", "Who was my first doctor?"),
        ("My doctor is {v}.", "{v} is my doctor, too."),
    ),
    Topic(
        ("the train", "the bus", "my bike", "the car"),
        ("I go to work by {v}.", "I take {v} to work.", "I usually get to work with {v}."),
        ("I take {v} to work now.", "I don't take {old} to work anymore, I take {v}.",
         "Since spring I take {v} to work instead of {old}.", "Lately I take {v} to work.",
         "I sold my ticket; I go to work by {v} now."),
        ("How do I get to work?", "What do I take to work?"),
        ("How did I get to work before?", "What did I use to take to work?"),
        ("I take {v} to work.", "I go to work by {v}."),
    ),
    Topic(
        ("Lisbon", "Crete", "Malta", "Corsica"),
        ("Our summer holiday is in {v}.", "We're going to {v} for the summer holiday.",
         "For the summer holiday we picked {v}."),
        ("Our summer holiday is in {v} after all.", "We're going to {v} instead for the summer holiday.",
         "Change of plan: the summer holiday is in {v}.", "No {old} this year; the summer holiday is in {v}.",
         "We cancelled {old}, for the summer holiday we picked {v}."),
        ("Where is our summer holiday?", "Where are we going for the summer holiday?"),
        ("Where was our summer holiday going to be before?", "Where were we going for the summer holiday originally?"),
        ("My summer holiday is in {v}.", "I'm going to {v} for the summer holiday."),
    ),
    Topic(
        ("2.3", "2.4", "3.0", "2.5"),
        ("The server runs version {v} of the parser.", "We're on parser version {v}.", "Our parser is version {v}."),
        ("We upgraded the parser to version {v}.", "The server runs version {v} of the parser now.",
         "We had to roll the parser to version {v}.", "Parser version is {v} as of today.",
         "Strike that, our parser is version {v}."),
        ("Which version of the parser does the server run?", "What parser version are we on?"),
        ("Which version of the parser did the server run before?", "What was our first parser version?"),
        ("My server runs version {v} of the parser.", "We're on parser version {v} here."),
    ),
)  # fmt: skip
"""Topics that were held out until the rules had been tried on them."""

HELD_OUT = (
    Topic(
        ("sneakers", "hiking boots", "sandals", "a scarf"),
        ("I'm getting Nora {v} for Christmas.", "Nora's Christmas present is {v}.", "For Nora I thought of {v} at Christmas."),
        ("Nora has them already, so her Christmas present is {v}.", "I'm getting Nora {v} for Christmas instead.",
         "Scratch that, Nora gets {v} for Christmas.", "Nora's Christmas present has changed to {v}.",
         "I returned the present, Nora now gets {v} for Christmas."),
        ("What is Nora's Christmas present?", "What am I getting Nora for Christmas?"),
        ("What was Nora's Christmas present before?", "What did I want to get Nora for Christmas at first?"),
        ("I'm getting Nora {v} for Christmas.", "My Christmas present for Nora is {v}."),
    ),
    Topic(
        ("3 pm", "4:30 pm", "11 am", "9:15 am"),
        ("The stand-up is at {v}.", "Our team has its stand-up at {v}.", "Stand-up's at {v} every day."),
        ("The stand-up is at {v} from next week.", "We agreed to hold the stand-up at {v}.",
         "Stand-up got moved, it's at {v}.", "Not {old}, the stand-up is at {v}.", "Stand-up starts at {v} now."),
        ("What time is the stand-up?", "When does our team have its stand-up?"),
        ("What time was the stand-up before?", "When did the stand-up use to be?"),
        ("My team has its stand-up at {v}.", "Our stand-up is at {v}."),
    ),
    Topic(
        ("a Volvo", "a Tesla", "a Fiat", "an old Saab"),
        ("I drive {v}.", "My car is {v}.", "I've got {v}, my car for ten years."),
        ("I traded in my car and drive {v} now.", "My new car is {v}.", "I drive {v} these days.",
         "{old} broke down, so my car is {v} now.", "I finally bought another car, {v}."),
        ("What car do I drive?", "What is my car?"),
        ("What car did I drive before?", "What was my old car?"),
        ("My car is {v}.", "I drive {v}, a lovely car."),
    ),
    Topic(
        ("page 40", "page 112", "page 210", "page 333"),
        ("I'm on {v} of the Tolstoy novel.", "In the Tolstoy novel I've reached {v}.", "Tolstoy novel: I'm at {v}."),
        ("I'm on {v} of the Tolstoy novel by now.", "In the Tolstoy novel I'm already at {v}.",
         "Progress! I've reached {v} in the Tolstoy novel.", "I am at {v} of the Tolstoy novel.",
         "Tolstoy novel, {v} today."),
        ("Which page of the Tolstoy novel am I on?", "How far am I in the Tolstoy novel?"),
        ("Which page of the Tolstoy novel was I on before?", "Which page of the Tolstoy novel was I on at first?"),
        ("I'm on {v} of the Tolstoy novel.", "In the Tolstoy novel I'm at {v}."),
    ),
    Topic(
        ("Gregor", "Susanne", "Milan", "Aisha"),
        ("{v} is bringing the speakers to the party.", "The speakers for the party come from {v}.",
         "{v} lends us speakers for the party."),
        ("{old} can't make it, {v} is bringing the speakers to the party.", "Now {v} is bringing the speakers to the party.",
         "{v} brings the speakers to the party, {old} is ill.", "We get the speakers for the party from {v} instead.",
         "{v} offered to bring the speakers to the party in place of {old}."),
        ("Who brings the speakers to the party?", "Who is bringing the speakers to the party?"),
        ("Who was going to bring the speakers to the party originally?",
         "Who was bringing the speakers to the party before?"),
        ("{v} is bringing the speakers to my party.", "For my party the speakers come from {v}."),
    ),
    Topic(
        ("every morning", "twice a week", "on Sundays only", "every other day"),
        ("I water the orchid {v}.", "The orchid gets water {v}.", "I give the orchid water {v}."),
        ("I water the orchid {v} now.", "The florist told me to water the orchid {v}.",
         "I've cut back and water the orchid {v}.", "The orchid gets water {v} instead of {old}.",
         "Turns out the orchid needs less, I water it {v}."),
        ("How often do I water the orchid?", "When does the orchid get water?"),
        ("How often did I water the orchid before?", "How often did I water the orchid originally?"),
        ("I water my orchid {v}.", "My orchid gets water {v}."),
    ),
    Topic(
        ("Anton", "Lucia", "Mrs Petrov", "Jonas"),
        ("My piano teacher is {v}.", "I have piano lessons with {v}.", "{v} teaches me the piano."),
        ("My piano teacher is {v} since September.", "I have piano lessons with {v} now.",
         "{old} moved away, so {v} teaches me the piano.", "I've found another piano teacher, {v}.",
         "I'm not with {old} anymore; my piano teacher is {v}."),
        ("Who is my piano teacher?", "Who teaches me the piano?"),
        ("Who was my piano teacher before?", "Who was my first piano teacher?"),
        ("My piano teacher is {v}.", "I have piano lessons with {v}."),
    ),
    Topic(
        ("40 hours", "32 hours", "28 hours", "36 hours"),
        ("I work {v} a week.", "My contract says {v} a week.", "My working week has {v}."),
        ("I've reduced my contract to {v} a week.", "I work {v} a week now.", "From May on I work {v} a week.",
         "My boss agreed: my contract is {v} a week.", "I don't work {old} a week anymore but {v}."),
        ("How many hours a week do I work?", "How many hours does my contract have?"),
        ("How many hours a week did I work before?", "How many hours a week did I use to work?"),
        ("I work {v} a week.", "My contract says {v} a week."),
    ),
    Topic(
        ("red wine", "prosecco", "cider", "alcohol-free beer"),
        ("We serve {v} at the opening.", "At the opening there'll be {v}.", "The drink for the opening is {v}."),
        ("We'll serve {v} at the opening instead of {old}.", "The caterer only has {v}, so that's what we serve at the opening.",
         "The drink for the opening is {v} now.", "Change of drinks: {v} at the opening.",
         "I ordered {v} for the opening after all."),
        ("What do we serve at the opening?", "Which drink is there at the opening?"),
        ("What were we going to serve at the opening before?", "What did we want to serve at the opening originally?"),
        ("At my opening we serve {v}.", "The drink at our opening is {v}."),
    ),
    Topic(
        ("room 4", "room 12", "the canteen", "the library"),
        ("The workshop takes place in {v}.", "The workshop is in {v}.", "We hold the workshop in {v}."),
        ("The workshop takes place in {v}, not in {old}.", "They've put the workshop in {v} now.",
         "The workshop is in {v}, {old} is being renovated.", "Room change: the workshop is in {v}.",
         "We're holding the workshop in {v} after all."),
        ("Where does the workshop take place?", "Where is the workshop?"),
        ("Where was the workshop going to be before?", "Where was the workshop originally?"),
        ("My workshop is in {v}.", "I hold my workshop in {v}."),
    ),
    Topic(
        ("1,200 euros", "1,450 euros", "990 euros", "1,600 euros"),
        ("The plumber wants {v} for the bathroom.", "The plumber's quote for the bathroom is {v}.",
         "The bathroom costs {v}, says the plumber."),
        ("The plumber now wants {v} for the bathroom.", "The plumber revised his quote for the bathroom: {v}.",
         "I spoke to the plumber again, the bathroom costs {v}.", "The plumber came down to {v} for the bathroom.",
         "The final quote of the plumber for the bathroom is {v}."),
        ("How much does the plumber want for the bathroom?", "What is the plumber's quote for the bathroom?"),
        ("What was the plumber's first quote for the bathroom?", "How much did the plumber want for the bathroom before?"),
        ("My plumber wants {v} for the bathroom.", "The plumber's quote for my bathroom is {v}."),
    ),
    Topic(
        ("Rust", "Go", "Kotlin", "Elixir"),
        ("I'm writing the game in {v}.", "The game is written in {v}.", "My game uses {v}."),
        ("I'm rewriting the game in {v}.", "I ported the game to {v}.", "The game is written in {v} now.",
         "I gave up on {old}, the game uses {v}.", "My game doesn't use {old} any more, I'm writing it in {v}."),
        ("What language is the game written in?", "Which language does my game use?"),
        ("What language was the game written in before?", "Which language did my game use originally?"),
        ("I'm writing my game in {v}.", "My game uses {v}."),
    ),
)  # fmt: skip
"""Topics that the rules were not written for."""

SEEN += _FIRST_HELD_OUT

TOPICS = SEEN + HELD_OUT

_FILLER = (
    "I ran {n} km in the park with {who} on {day}.", "The weather was {n} degrees and sunny on {day}.",
    "{who} sent me a photo of the lake, lovely.", "I spent {n} euros on groceries on {day}.",
    "Do you know a good recipe for lentil soup?", "I read {n} pages of the novel before going to sleep.",
    "{who} and I watched a film about whales.", "My shoes are wet, it rained all {day}.",
    "Chapter {n} of the history course is about canals.", "I fixed the lamp, it took {n} minutes.",
    "What do you think about board games for {n} people?", "{who} is {n} years old this week.",
    "I have a headache, probably too much sun on {day}.", "The museum had {n} paintings by {who}.",
    "Ticket {n} is closed, {who} checked it.", "We planted {n} tulips, {who} helped.",
)  # fmt: skip
_REPLIES = (
    "Noted.", "Thanks for telling me!", "Got it, I'll remember that.", "That sounds good.", "Okay, anything else?",
    "I see. Shall I put it on a list?",
)  # fmt: skip
_WHO = ("Tom", "Priya", "Aunt Rosa", "Lena", "Mr Novak")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

START = datetime(2025, 1, 6, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A conversation in which something changes.

    Attributes:
        messages: everything said, oldest first.
        said: the ids of the statements of its value, oldest first.
        of_others: the ids of what another speaker says about his or her own.
        values: the values, oldest first.
        question: asks for the value of today.
        history: asks for the value before.
    """

    messages: tuple[Message, ...]
    said: tuple[str, ...]
    of_others: tuple[str, ...]
    values: tuple[str, ...]
    question: str
    history: str


def filler(random: Random) -> str:
    """Return a line that states nothing that lasts."""
    line = random.choice(_FILLER)
    return line.format(n=random.randint(2, 60), who=random.choice(_WHO), day=random.choice(_DAYS))


def conversation(topic: Topic, random: Random, *, length: int = 120, others: bool = True) -> Change:
    """Return a conversation about a topic.

    Args:
        topic: what it is about.
        random: the source of all choices.
        length: lines of the user's, each with a reply.
        others: whether Ben, who listens, says something about his own as well.
    """
    steps = random.choice((2, 2, 2, 3))
    first = random.randrange(len(topic.values))
    values = tuple(topic.values[(first + step) % len(topic.values)] for step in range(steps))
    texts = [random.choice(topic.before).format(v=values[0])]
    texts += [random.choice(topic.after).format(v=new, old=old) for old, new in zip(values, values[1:], strict=False)]
    texts = [text[0].upper() + text[1:] for text in texts]
    spots = sorted(random.sample(range(length), steps + others))
    theirs = random.choice(spots) if others else None
    messages: list[Message] = []
    said: list[str] = []
    of_others: list[str] = []
    left = list(texts)
    for line in range(length):
        at, id_ = START + timedelta(hours=7 * line), f"m{line}"
        if line == theirs:
            text, value = random.choice(topic.others), next(value for value in reversed(topic.values) if value != values[-1])
            messages.append(Message.user(text.format(v=value), id=id_, name="Ben", created_at=at))
            of_others.append(id_)
        elif line in spots:
            messages.append(Message.user(left.pop(0), id=id_, created_at=at))
            said.append(id_)
        else:
            messages.append(Message.user(filler(random), id=id_, created_at=at))
        reply = random.choice(_REPLIES)
        messages.append(Message.assistant(reply, id=f"r{line}", created_at=at + timedelta(minutes=1)))
    question, history = random.choice(topic.asks), random.choice(topic.history)
    return Change(tuple(messages), tuple(said), tuple(of_others), values, question, history)


def changes(topics: tuple[Topic, ...], count: int, *, seed: int = 0) -> Iterator[Change]:
    """Yield changes of topics by turns, at various lengths; every third conversation is without Ben."""
    random = Random(seed)
    for number in range(count):
        length = random.choice((12, 40, 90, 160))
        yield conversation(topics[number % len(topics)], random, length=length, others=number % 3 != 2)
