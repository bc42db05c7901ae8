------------------------------- MODULE Trace -------------------------------
(* Follows recorded journals: every entry must be a sequence of actions that the specification allows, and lead to the
   state that the product has after it. What is printed: each trace that is followed to its end, and of another one what
   is wrong with its first wrong entry. ReplicationTrace and GroupsTrace say of which specification.

     Rules(s, a), Effect(s, a)     an action: its conditions, and the state after it
     Excuses(s, a)                 whether StepInvariants are told that the action is one of the exceptions
     Seen(s)                       what the product also says of a state *)

EXTENDS Naturals, Sequences, TLC

CONSTANTS Traces, Rules(_, _), Effect(_, _), Excuses(_, _), Seen(_), Invariants(_), StepInvariants(_, _, _)
VARIABLES trace, next, state

Init == trace \in DOMAIN Traces /\ next = 1 /\ state = Traces[trace].begin

Broken(rules) == {name \in DOMAIN rules : ~rules[name]}

RECURSIVE Follow(_, _, _)
Follow(s, actions, excused) ==
    IF actions = << >> THEN [state |-> s, broken |-> {}, excused |-> excused]
    ELSE LET a == Head(actions)
             broken == {<<a.kind, name>> : name \in Broken(Rules(s, a))}
         IN  IF broken # {} THEN [state |-> s, broken |-> broken, excused |-> excused]
             ELSE Follow(Effect(s, a), Tail(actions), excused \/ Excuses(s, a))

Problems(entry, reached) ==
    LET ours == Seen(reached.state)
    IN  IF reached.broken # {} THEN reached.broken
        ELSE {<<"state", name, "specification", ours[name], "journal", entry.seen[name]>> :
                name \in {name \in DOMAIN ours : ours[name] # entry.seen[name]}}
             \cup {<<"invariant", name>> : name \in Broken(Invariants(reached.state))
                                                 \cup Broken(StepInvariants(state, reached.state, reached.excused))}

Next ==
    LET entries == Traces[trace].entries
        entry == entries[next]
        reached == Follow(state, entry.actions, FALSE)
        problems == Problems(entry, reached)
    IN  /\ next <= Len(entries)
        /\ UNCHANGED trace
        /\ state' = reached.state
        /\ IF problems = {} THEN next' = next + 1 /\ (next = Len(entries) => PrintT(<<"followed", trace>>))
           ELSE next' = Len(entries) + 1 /\ PrintT(<<"broken", trace, entry.number, ToString(problems)>>)

Spec == Init /\ [][Next]_<<trace, next, state>>
=============================================================================
