--------------------------- MODULE JournalsTrace ---------------------------
(* Follows what the stores of journals got. The module Traces is made for each run. *)

EXTENDS Journals, Traces

VARIABLES trace, next, state

Excuses(s, a) == FALSE
Seen(s) == LET newest == CHOOSE e \in Decided(s) : \A d \in Decided(s) : d.n <= e.n
           IN  [n |-> newest.n, id |-> newest.id, generation |-> newest.place.generation]

INSTANCE Trace
=============================================================================
