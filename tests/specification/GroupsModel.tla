---------------------------- MODULE GroupsModel ----------------------------
(* Explores Groups with its clients. A client takes its assignment, reads, and commits; at any moment it may be late, and
   act on what it knew before. The journal accepts a commit by Accepted alone. That must be enough: `wrong` are the rules
   of a commit that an accepted one broke. *)

EXTENDS Groups

CONSTANTS Clients, Static, Partitions, OffsetMax, GenerationMax, RewindMax

VARIABLES g, clients, wrong
vars == <<g, clients, wrong>>

(* What a client knows: the generation whose assignment it has taken, its partitions, and how far it has read each. *)
Nothing == [generation |-> 0, owns |-> {}, at |-> [p \in Partitions |-> 0]]
Init == g = Effect(New, [kind |-> "start"]) /\ clients = [c \in Clients |-> Nothing] /\ wrong = {}

RECURSIVE After(_, _)
After(h, actions) ==  \* the states after the actions, none if one is not allowed
    IF actions = << >> THEN {h}
    ELSE IF ~Allowed(Rules(h, Head(actions))) THEN {} ELSE After(Effect(h, Head(actions)), Tail(actions))

Rebalance == IF g.phase = "PreparingRebalance" THEN << >> ELSE <<[kind |-> "rebalance"]>>
InstanceOf(c) == IF c \in Static THEN c ELSE ""
Late(h) == {m.id : m \in {m \in Range(h.members) : ~m.joined /\ m.instance = ""}}
Next1(h) ==  \* a generation begins, without those that are late
    LET removed == IF Late(h) = {} THEN << >> ELSE <<[kind |-> "remove", ids |-> Late(h), reason |-> "late", syncs |-> FALSE]>>
    IN  UNION {After(h, removed \o <<[kind |-> "begin", leader |-> l]>>) : l \in Clients \cup {""}}
Completed(h) == IF Late(h) = {} THEN Next1(h) ELSE {h}
Moved(h) == g' = h /\ UNCHANGED <<clients, wrong>>

Join(c) == \E h \in After(g, Rebalance \o <<[kind |-> "join", id |-> c, instance |-> InstanceOf(c)]>>) : Moved(h)
Remove(c) == \E h \in After(g, Rebalance \o <<[kind |-> "remove", ids |-> {c}, reason |-> "expired", syncs |-> FALSE]>>) :
                \E done \in Completed(h) : Moved(done)
PassOver == g.phase = "CompletingRebalance" /\
    \E h \in After(g, Rebalance \o <<[kind |-> "pass over", id |-> g.leader, syncs |-> TRUE]>>) : Moved(h)
Begin == g.phase = "PreparingRebalance" /\ \E h \in Next1(g) : Moved(h)
Assign == \E owner \in [Partitions -> Ids(g)] :
            LET shares == {[id |-> id, owns |-> {p \in Partitions : owner[p] = id}] : id \in Ids(g)}
            IN  \E h \in After(g, <<[kind |-> "assign", shares |-> shares]>>) : Moved(h)
Reset == g.rewinds < RewindMax /\ \E p \in Partitions, o \in 0..OffsetMax :
            \E h \in After(g, <<[kind |-> "reset", offsets |-> {[partition |-> p, offset |-> o]}]>>) : Moved(h)

OffsetOf(p) == IF Committed(g, p) = {} THEN 0 ELSE (CHOOSE o \in Committed(g, p) : TRUE).offset
Take(c) == /\ g.phase = "Stable" /\ c \in Ids(g)
           /\ Member(g, c).first <= g.generation
           /\ clients[c].generation # g.generation
           /\ clients' = [clients EXCEPT ![c] = [generation |-> g.generation, owns |-> Member(g, c).owns,
                                                 at |-> [p \in Partitions |-> OffsetOf(p)]]]
           /\ UNCHANGED <<g, wrong>>
Read(c) == \E p \in clients[c].owns : clients[c].at[p] < OffsetMax
              /\ clients' = [clients EXCEPT ![c].at[p] = @ + 1] /\ UNCHANGED <<g, wrong>>
Commit(c) == \E p \in clients[c].owns :
    LET k == clients[c]
        a == [kind |-> "commit", id |-> c, may_go_back |-> FALSE, offsets |-> {[partition |-> p, offset |-> k.at[p]]}]
        rules == Rules(g, a)
    IN  /\ Accepted(g, [id |-> c, generation |-> k.generation])
        /\ g' = Effect(g, a) /\ g' # g
        /\ wrong' = wrong \cup {name \in DOMAIN rules : ~rules[name]}
        /\ UNCHANGED clients

Next == Begin \/ PassOver \/ Assign \/ Reset \/ \E c \in Clients : Join(c) \/ Remove(c) \/ Take(c) \/ Read(c) \/ Commit(c)
Spec == Init /\ [][Next]_vars

Small == g.generation <= GenerationMax

Holds == Allowed(Invariants(g))
AcceptedCommitsAreRight == wrong = {}
StepsHold == [][Allowed(StepInvariants(g, g', FALSE))]_vars
=============================================================================
