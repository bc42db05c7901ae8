--------------------------- MODULE JournalsModel ---------------------------
(* Explores Journals: all that a few writers may do, in any order, on stores of which a minority is wiped. To keep that
   small, everybody interferes with everybody only in some slots; in the others one writer does all it has to do at once. *)

EXTENDS Journals, Sequences, TLC

CONSTANTS Writers,  \* one of them leads in the first slot
          First,    \* the stores on which the journal begins
          Lists,    \* the lists to which it may move
          Alike,    \* stores that are in the same lists
          Contended,  \* the slots where writers interfere: 10 times the generation, and the number
          SlotMax, BallotMax, GenerationMax,
          LostMax,  \* how many stores are wiped
          Kinds     \* of actions that are explored besides

VARIABLE s

Init == LET place == [generation |-> 1, stores |-> First]
            entry == [Start(place) EXCEPT !.by = CHOOSE w \in Writers : TRUE]
        IN  s = [New(place) EXCEPT !.decided = {[place |-> place, entry |-> entry]}]

Stores == First \cup UNION Lists
Seen == Decided(s) \cup {v.entry : v \in {v \in s.votes : v.entry # Nil}}
Places == {e.place : e \in Seen}
Slots == {[place |-> p, n |-> n] : p \in Places, n \in 1..SlotMax}
IsContended(slot) == 10 * slot.place.generation + slot.n \in Contended
IsLeft(p, lost) == IsMajority(p.stores \ lost, p)

(* What a writer may want to have decided: an entry of its own, after any that it may have seen, or one that it has seen. *)
PlacesAfter(p) ==
    LET next == {[generation |-> p.generation + 1, stores |-> list] : list \in Lists}
    IN  {p} \cup (IF p.generation < GenerationMax THEN {q \in next : IsLeft(q, s.lost)} ELSE {})
Own(w, n) == UNION {{[n |-> n, id |-> <<w, p, e.id>>, previous |-> e.id, by |-> w, place |-> p] : p \in PlacesAfter(e.place)} :
                      e \in {e \in Seen : e.n + 1 = n}}
Wanted(w, n) == Own(w, n) \cup {e \in Seen : e.n = n}

ClaimOf(slot, b, stores, w) == [kind |-> "claim", place |-> slot.place, n |-> slot.n, ballot |-> b, stores |-> stores, by |-> w]
VoteOf(slot, b, store, e, w) ==
    [kind |-> "vote", place |-> slot.place, n |-> slot.n, ballot |-> b, store |-> store, entry |-> e, by |-> w]
CloseOf(slot, b, store) == VoteOf(slot, b, store, Nil, "nobody")

Done(a) == Allowed(Rules(s, a)) /\ s' = Effect(s, a) /\ s' # s

(* Who claims a ballot has a majority: with less it can do nothing. Which one makes no difference unless a store is wiped. *)
MajoritiesOf(p) ==
    LET all == {stores \in SUBSET p.stores : Cardinality(stores) = Cardinality(p.stores) \div 2 + 1}
    IN  IF LostMax > 0 THEN all ELSE {CHOOSE stores \in all : TRUE}
Claim == \E slot \in {slot \in Slots : IsContended(slot) /\ ~IsPast(s, slot)} :
            /\ \E e \in Decided(s) : e.place = slot.place /\ slot.n \in {e.n, e.n + 1}
            /\ \E b \in 1..BallotMax, w \in Writers, stores \in MajoritiesOf(slot.place) : Done(ClaimOf(slot, b, stores, w))
Close == \E c \in s.claims : IsContended(c) /\ ~IsPast(s, c)
            /\ \E b \in 0..c.ballot - 1, store \in c.place.stores : Done(CloseOf(c, b, store))
Vote == \E slot \in {slot \in Slots : IsContended(slot)}, b \in 0..BallotMax, w \in Writers :
            /\ IsPast(s, slot) => b = BallotMax
            /\ \E store \in slot.place.stores, e \in Wanted(w, slot.n) : Done(VoteOf(slot, b, store, e, w))

RECURSIVE After(_, _)
After(t, actions) ==  \* the states after the actions, none if one is not allowed
    IF actions = << >> THEN {t}
    ELSE IF ~Allowed(Rules(t, Head(actions))) THEN {} ELSE After(Effect(t, Head(actions)), Tail(actions))
AtOnce ==
    \E slot \in {slot \in Slots : ~IsContended(slot)}, b \in 0..1, w \in Writers :
        /\ ~\E d \in s.decided : d.place = slot.place /\ d.entry.n = slot.n
        /\ \E stores \in MajoritiesOf(slot.place), e \in Wanted(w, slot.n) :
              LET x == CHOOSE store \in stores : TRUE
                  y == CHOOSE store \in stores : store # x
                  claim == <<ClaimOf(slot, b, stores, w), CloseOf(slot, 0, x), CloseOf(slot, 0, y)>>
                  votes == <<VoteOf(slot, b, x, e, w), VoteOf(slot, b, y, e, w)>>
              IN  \E t \in After(s, (IF b = 0 THEN << >> ELSE claim) \o votes) : s' = t

Snapshot == \E e \in {e \in Seen : e.n > 0 /\ ("late" \in Kinds \/ \A d \in Decided(s) : d.n <= e.n)} :
               \E store \in e.place.stores \ s.lost : Done([kind |-> "snapshot", store |-> store, entry |-> e])
Trim == \E slot \in Slots : \E store \in slot.place.stores :
           Done([kind |-> "trim", place |-> slot.place, n |-> slot.n, store |-> store, ballots |-> 0..BallotMax])

(* A minority is wiped of the stores that hold the journal, or to which it moves. Of those that it has left, all may be. *)
Wipe == \E store \in Stores :
           /\ Cardinality(s.lost) < LostMax
           /\ LET begun == Greatest({d.place.generation : d \in s.decided})
              IN  \A p \in Places : p.generation >= begun => IsLeft(p, s.lost \cup {store})
           /\ Done([kind |-> "wipe", store |-> store])

Next == \/ Vote
        \/ Claim
        \/ Close
        \/ AtOnce
        \/ Wipe
        \/ "snapshot" \in Kinds /\ Snapshot
        \/ "trim" \in Kinds /\ Trim

Spec == Init /\ [][Next]_s

Small == TRUE
Same == Permutations(Alike)

Holds == Allowed(Invariants(s))
NothingDecidedIsLost == NothingIsLost(s)
StepsHold == [][Allowed(StepInvariants(s, s', FALSE))]_s
=============================================================================
