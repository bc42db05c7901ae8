------------------------- MODULE ReplicationModel -------------------------
(* Explores Replication: every order of every action on a partition of few nodes, rows and epochs. What a clean election
   must not lose is known from `acked`: the end of the rows that were acknowledged with acks=all. *)

EXTENDS Replication

CONSTANTS Order,     \* the nodes of the partition, preferred leader first
          Spares,    \* nodes that it can move to
          Min, Quorum, RowsMax, EpochMax,
          SuspectsMax, \* how many nodes are suspected at once
          Kinds      \* of actions that are explored

(* A configuration file has no sequences. *)
AB == <<"a", "b">>
ABC == <<"a", "b", "c">>
Nodes == Range(Order) \cup Spares

VARIABLES s,      \* the partition
          acked,  \* rows before this offset were acknowledged with acks=all
          cut,    \* whether a clean election has cut one of them
          rows    \* how many rows there have ever been; they name the files
vars == <<s, acked, cut, rows>>

Init == s = New(Order, Min, Quorum) /\ acked = 0 /\ cut = FALSE /\ rows = 0

Appends == {[kind |-> "append", acks |-> acks, rows |-> <<[id |-> <<"file", rows>>, rows |-> 1, holders |-> holders]>>, nodes |-> holders] :
              acks \in {"all", "1"}, holders \in SUBSET Nodes \ {{}}}
StartOf(t, n) == IF n = None THEN t.end ELSE Leo(t, n)
Elections(t) == {[kind |-> "elect", leader |-> n, epoch |-> t.epoch + 1, start |-> StartOf(t, n), lost |-> t.end - StartOf(t, n),
                  isr |-> isr] : n \in Replicas(t) \cup {None}, isr \in SUBSET Replicas(t)}
Segments(t) == {[id |-> <<"segment", b, e>>, base |-> b, end |-> e, holders |-> holders] :
                  b \in 0..t.end, e \in 0..t.end, holders \in SUBSET Nodes \ {{}}}
Of(kind) == {[kind |-> kind, node |-> n] : n \in Nodes}

(* A decision that may need an election: the actions are one entry. *)
Elected(t) == IF t.leader # None /\ (t.leader \notin t.isr \/ t.leader \in t.fenced)
              THEN {Effect(t, e) : e \in {e \in Elections(t) : IsClean(t, e) /\ Allowed(Rules(t, e))}}
              ELSE {t}
Allow(actions) == {a \in actions : Allowed(Rules(s, a))}

Moved(t) == s' = t /\ t # s /\ UNCHANGED <<acked, cut, rows>>
One(actions) == \E a \in Allow(actions) : Moved(Effect(s, a))

Batch == rows < RowsMax /\ \E a \in Allow(Appends) :
            /\ s' = Effect(s, a) /\ rows' = rows + 1 /\ UNCHANGED cut
            /\ acked' = IF a.acks = "all" THEN s'.end ELSE acked
Elect == \E a \in Allow(Elections(s)) :
            /\ s' = Effect(s, a) /\ UNCHANGED rows
            /\ IF IsClean(s, a) THEN cut' = (cut \/ s'.end < acked) /\ UNCHANGED acked
               ELSE "unclean" \in Kinds /\ acked' = Least({acked, s'.end}) /\ UNCHANGED cut
Fence == \E a \in Allow(Of("fence") \cup Of("unfence")) : \E t \in Elected(Effect(s, a)) : Moved(t)
Wipe == \E a \in Of("renew") : s.isr # {a.node} /\ \E t \in Elected(Effect(s, a)) : Moved(t)
Segment == \E g \in {g \in Segments(s) : g.base < g.end /\ g.id \notin Files(s)} :
            One({[kind |-> "swap", segment |-> g]})
Alter == LET moves == {[kind |-> "alter", order |-> Append(s.order, new), adding |-> {new}, removing |-> {old}] :
                         new \in Nodes \ Replicas(s), old \in Replicas(s)}
             left == SelectSeq(s.order, LAMBDA n : n \notin s.removing)
             kept == SelectSeq(s.order, LAMBDA n : n \notin s.adding)
             ends == {[kind |-> "alter", order |-> order, adding |-> {}, removing |-> {}] : order \in {left, kept}}
         IN  One(IF s.adding = {} THEN moves ELSE ends)

Next == \/ "append" \in Kinds /\ Batch
        \/ "elect" \in Kinds /\ Elect
        \/ "fence" \in Kinds /\ Fence
        \/ "renew" \in Kinds /\ Wipe
        \/ "segment" \in Kinds /\ Segment
        \/ "alter" \in Kinds /\ Alter
        \/ "hold" \in Kinds /\ One({[kind |-> "hold", node |-> n, ids |-> {id}] : n \in Nodes, id \in Files(s)})
        \/ "shrink" \in Kinds /\ One({[kind |-> "shrink", isr |-> isr] : isr \in SUBSET s.isr})
        \/ "suspect" \in Kinds /\ Cardinality(s.suspects) < SuspectsMax /\ One(Of("suspect"))
        \/ "suspect" \in Kinds /\ One(Of("cancel"))
        \/ "start" \in Kinds /\ One({[kind |-> "start", start |-> e] : e \in 0..s.end})

Spec == Init /\ [][Next]_vars

Small == s.epoch <= EpochMax

Holds == Allowed(Invariants(s))
NothingAcknowledgedIsCut == ~cut
WhatIsAcknowledgedIsCommitted == acked <= s.hw
StepsHold == [][Allowed(StepInvariants(s, s', "unclean" \in Kinds))]_vars
=============================================================================
