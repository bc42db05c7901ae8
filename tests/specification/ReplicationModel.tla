------------------------- MODULE ReplicationModel -------------------------
(* Explores Replication: every order of every action on a partition of few nodes, rows and epochs. What a clean election
   must not lose is known from `acked`: the end of the rows that were acknowledged with acks=all. *)

EXTENDS Replication

CONSTANTS Nodes, Order, Min, Quorum, RowsMax, EpochMax, Unclean

OrderABC == <<"a", "b", "c">>
OrderAB == <<"a", "b">>

VARIABLES s,      \* the partition
          acked,  \* rows before this offset were acknowledged with acks=all
          cut,    \* whether a clean election has cut one of them
          rows    \* how many rows there have ever been; they name the files
vars == <<s, acked, cut, rows>>

Init == s = Start([order |-> Order, min |-> Min, quorum |-> Quorum, compacted |-> FALSE, fenced |-> {}, suspects |-> {}]) /\ acked = 0 /\ cut = FALSE /\ rows = 0

Appends == {[kind |-> "append", acks |-> acks, rows |-> <<[id |-> <<"file", rows>>, rows |-> 1, holders |-> holders]>>, nodes |-> holders] :
              acks \in {"all", "1"}, holders \in SUBSET Nodes \ {{}}}
StartOf(t, n) == IF n = None THEN t.end ELSE Leo(t, n)
Elections(t) == {[kind |-> "elect", leader |-> n, epoch |-> t.epoch + 1, start |-> StartOf(t, n), lost |-> t.end - StartOf(t, n),
                  isr |-> isr] : n \in Replicas(t) \cup {None}, isr \in SUBSET Replicas(t)}
Segments(t) == {[id |-> <<"segment", b, e>>, base |-> b, end |-> e, holders |-> holders, keyed |-> FALSE] :
                  b \in 0..t.end, e \in 0..t.end, holders \in SUBSET Nodes \ {{}}}
Of(kind) == {[kind |-> kind, node |-> n] : n \in Nodes}

(* A decision that may need an election: the actions are one entry. *)
Elected(t) == IF t.leader # None /\ (t.leader \notin t.isr \/ t.leader \in t.fenced)
              THEN {Effect(t, e) : e \in {e \in Elections(t) : IsClean(t, e) /\ Allowed(Rules(t, e))}}
              ELSE {t}
Allow(actions) == {a \in actions : Allowed(Rules(s, a))}

Moved(t) == s' = t /\ t # s /\ UNCHANGED <<acked, cut, rows>>

Batch == rows < RowsMax /\ \E a \in Allow(Appends) :
            /\ s' = Effect(s, a) /\ rows' = rows + 1 /\ UNCHANGED cut
            /\ acked' = IF a.acks = "all" THEN s'.end ELSE acked
Copy == \E n \in Nodes, id \in Files(s) : Moved(Effect(s, [kind |-> "hold", node |-> n, ids |-> {id}]))
Shrink == \E a \in Allow({[kind |-> "shrink", isr |-> isr] : isr \in SUBSET s.isr}) : Moved(Effect(s, a))
Suspect == \E a \in Allow(Of("suspect") \cup Of("cancel")) : Moved(Effect(s, a))
Fence == \E a \in Allow(Of("fence") \cup Of("unfence")) : \E t \in Elected(Effect(s, a)) : Moved(t)
Wipe == \E a \in Of("renew") : Replicas(s) \cap s.isr # {a.node} /\ \E t \in Elected(Effect(s, a)) : Moved(t)
Elect == s.epoch < EpochMax /\ \E a \in Allow(Elections(s)) :
            /\ s' = Effect(s, a) /\ UNCHANGED rows
            /\ IF IsClean(s, a) THEN cut' = (cut \/ s'.end < acked) /\ UNCHANGED acked
               ELSE Unclean /\ acked' = Least({acked, s'.end}) /\ UNCHANGED cut
Damage == \E a \in Allow({[kind |-> "damage", node |-> n, ids |-> {id}, leader |-> l] :
                            n \in Nodes, id \in Files(s), l \in Replicas(s) \cup {Same}}) : Moved(Effect(s, a))
Roll == \E g \in Segments(s), kind \in {"swap", "stage"} :
            LET a == [kind |-> kind, segment |-> g]
            IN  g.base < g.end /\ g.id \notin Files(s) /\ Allowed(Rules(s, a)) /\ Moved(Effect(s, a))
SwapStaged == \E g \in s.staged : Allowed(Rules(s, [kind |-> "swap", segment |-> g]))
                                  /\ Moved(Effect(s, [kind |-> "swap", segment |-> g]))
Reassign == \E nodes \in SUBSET Nodes \ {{}} :
            LET kept == SelectSeq(s.order, LAMBDA n : n \in nodes \/ s.adding = {})
                new == nodes \ Replicas(s)
                order == IF new = {} THEN kept ELSE Append(kept, CHOOSE n \in new : TRUE)
                begin == [kind |-> "alter", order |-> order, adding |-> new, removing |-> Range(s.order) \ nodes]
                finish == [kind |-> "alter", order |-> SelectSeq(s.order, LAMBDA n : n \notin s.removing),
                           adding |-> {}, removing |-> {}]
            IN  \/ /\ s.adding \cup s.removing = {} /\ Cardinality(new) <= 1 /\ nodes # Replicas(s)
                   /\ Allowed(Rules(s, begin)) /\ Moved(Effect(s, begin))
                \/ /\ s.adding \cup s.removing # {} /\ Allowed(Rules(s, finish)) /\ Moved(Effect(s, finish))
Expire == \E a \in Allow({[kind |-> "start", start |-> e] : e \in 0..s.end}) : Moved(Effect(s, a))

Next == Batch \/ Copy \/ Shrink \/ Suspect \/ Fence \/ Wipe \/ Elect \/ Damage \/ Roll \/ SwapStaged \/ Reassign \/ Expire
Spec == Init /\ [][Next]_vars

(* The state is explored up to this. Elections that follow from fences and wipes also count. *)
Small == s.epoch <= EpochMax

Holds == Allowed(Invariants(s))
NothingAcknowledgedIsCut == ~cut
WhatIsAcknowledgedIsCommitted == acked <= s.hw
StepsHold == [][Allowed(StepInvariants(s, s', acked' < acked))]_vars
(* An unclean election can lower the HW also where nothing was acknowledged with acks=all. *)
StepsHoldOrUnclean == [][Allowed(StepInvariants(s, s', Unclean))]_vars
=============================================================================
