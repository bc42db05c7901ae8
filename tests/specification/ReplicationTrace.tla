------------------------- MODULE ReplicationTrace -------------------------
(* Follows journals of topics, each for one partition. The module Traces is made for each run. *)

EXTENDS Replication, Traces

VARIABLES trace, next, state

Excuses(s, a) == a.kind = "elect" /\ ~IsClean(s, a)
Seen(s) == [leader |-> s.leader, epoch |-> s.epoch, isr |-> s.isr, start |-> s.start, hw |-> s.hw, end |-> s.end,
            leos |-> {<<n, Leo(s, n)>> : n \in Replicas(s)}, suspects |-> s.suspects, fenced |-> s.fenced]

INSTANCE Trace
=============================================================================
