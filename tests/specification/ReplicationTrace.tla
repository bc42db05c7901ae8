------------------------- MODULE ReplicationTrace -------------------------
(* Follows recorded journals, each for one partition: every entry must be a sequence of allowed actions, and lead to the
   state that the product has after it. The module Traces, which is made for each run, has the journals; a trace that
   is followed to its end, and each rule that an entry breaks, are printed. *)

EXTENDS Replication, TLC, Traces

VARIABLES trace, next, s
vars == <<trace, next, s>>

Init == trace \in DOMAIN Traces /\ next = 1 /\ s = Start(Traces[trace].begin)

RECURSIVE Follow(_, _, _)
Follow(state, actions, unclean) ==
    IF actions = << >> THEN [state |-> state, broken |-> {}, unclean |-> unclean]
    ELSE LET a == Head(actions)
             rules == Rules(state, a)
             broken == {<<a.kind, name>> : name \in {name \in DOMAIN rules : ~rules[name]}}
         IN  IF broken # {} THEN [state |-> state, broken |-> broken, unclean |-> unclean]
             ELSE Follow(Effect(state, a), Tail(actions), unclean \/ (a.kind = "elect" /\ ~IsClean(state, a)))

(* What the product says of the state after an entry. *)
Seen(t) == [leader |-> t.leader, epoch |-> t.epoch, isr |-> t.isr, start |-> t.start, hw |-> t.hw, end |-> t.end,
            leos |-> {<<n, Leo(t, n)>> : n \in Replicas(t)}, suspects |-> t.suspects, fenced |-> t.fenced,
            staged |-> {g.id : g \in t.staged}]

Problems(entry, reached) ==
    LET t == reached.state
        ours == Seen(t)
        always == Invariants(t)
        steps == StepInvariants(s, t, reached.unclean)
    IN  reached.broken
        \cup {<<"state", name, "specification", ours[name], "journal", entry.seen[name]>> :
                name \in {name \in DOMAIN ours : reached.broken = {} /\ ours[name] # entry.seen[name]}}
        \cup {<<"invariant", name>> : name \in {name \in DOMAIN always : reached.broken = {} /\ ~always[name]}}
        \cup {<<"invariant", name>> : name \in {name \in DOMAIN steps : reached.broken = {} /\ ~steps[name]}}

Next ==
    LET entries == Traces[trace].entries
        entry == entries[next]
        reached == Follow(s, entry.actions, FALSE)
        problems == Problems(entry, reached)
    IN  /\ next <= Len(entries)
        /\ UNCHANGED trace
        /\ IF problems = {}
           THEN /\ s' = reached.state /\ next' = next + 1
                /\ next = Len(entries) => PrintT(<<"followed", trace>>)
           ELSE /\ UNCHANGED s /\ next' = Len(entries) + 1
                /\ \A problem \in problems : PrintT(<<"broken", trace, entry.number, problem>>)

Spec == Init /\ [][Next]_vars
=============================================================================
