---------------------------- MODULE GroupsTrace ----------------------------
(* Follows journals of groups. The module Traces is made for each run. *)

EXTENDS Groups, Traces

VARIABLES trace, next, state

Excuses(g, a) == a.kind = "commit" /\ a.may_go_back
Seen(g) == [phase |-> g.phase, generation |-> g.generation, leader |-> g.leader, rewinds |-> g.rewinds,
            members |-> {[id |-> m.id, joined |-> m.joined, owns |-> m.owns] : m \in Range(g.members)},
            offsets |-> g.offsets]

INSTANCE Trace
=============================================================================
