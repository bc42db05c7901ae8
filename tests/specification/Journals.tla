------------------------------ MODULE Journals ------------------------------
(* One journal, on one store or on several: what each store may get, and which entries are decided by that.

   Written from docs/design/0011, 0023 and 0045, not from the code, in the form of Replication.tla: `s` is the state of
   the journal, `a` an action, Rules(s, a) the conditions, Effect(s, a) the state after it. An action is what a store gets
   or loses. There are no processes: what one may write rests on what it has once found on stores, and nothing takes that
   back. So a writer may be suspended before any action, for any time, and may lose the answer to any. *)

EXTENDS Naturals, FiniteSets

Allowed(rules) == \A name \in DOMAIN rules : rules[name]
Greatest(numbers) == CHOOSE x \in numbers : \A y \in numbers : x >= y

-----------------------------------------------------------------------------
(* A place is a list of stores, with the number of its generation [0045]. An entry has its number `n`, its `id` and that of
   the entry before it, the process that wrote it, and the place of the entries after it. An entry that names another place
   than the one where it is decided moves the journal. Nil is what closes a vote. *)

Start(place) == [n |-> 0, id |-> << >>, previous |-> << >>, by |-> "nobody", place |-> place]
Nil == Start([generation |-> 0, stores |-> {}])
IsMajority(stores, place) == 2 * Cardinality(stores \cap place.stores) > Cardinality(place.stores)

(* The state.

     decided     entries, each with a place where it is decided
     claims      registers: `by` claims a ballot of a slot, on one store
     votes       registers: an entry or Nil in a ballot of a slot, on one store
     snapshots   the newest one of each store, which is the state after an entry
     lost        stores that were wiped. They are empty, and do not count: what comes back is another store [0023].
                 What they said before, suspended processes know *)

New(place) == [decided |-> {[place |-> place, entry |-> Start(place)]},
               claims |-> {}, votes |-> {}, snapshots |-> {}, lost |-> {}]

In(registers, a) == {r \in registers : r.n = a.n /\ r.place = a.place}  \* those of a slot
StoresOf(registers) == {r.store : r \in registers}
NewestAt(s, store) == Greatest({0} \cup {x.entry.n : x \in {x \in s.snapshots : x.store = store}})
Decided(s) == {d.entry : d \in s.decided}

(* [0011, 0023] What is written into a slot after a majority has a snapshot of a later entry has no effect. *)
IsPast(s, a) == IsMajority({store \in a.place.stores : NewestAt(s, store) > a.n}, a.place)

-----------------------------------------------------------------------------
(* A claim of a ballot, on some stores. *)

ClaimRules(s, a) ==
    [the_stores_count |-> a.stores \subseteq a.place.stores \ s.lost,
     the_registers_are_empty |-> \A c \in In(s.claims, a) : c.ballot = a.ballot => c.store \notin a.stores \ s.lost]

ClaimEffect(s, a) ==
    [s EXCEPT !.claims = @ \cup {[place |-> a.place, n |-> a.n, ballot |-> a.ballot, store |-> store, by |-> a.by] :
                                   store \in a.stores}]

-----------------------------------------------------------------------------
(* A vote. *)

Begins(s, a) ==  \* the journal begins in a place with the entry that moved it there
    \E d \in s.decided : d.entry = a.entry /\ d.place # a.place /\ a.entry.place = a.place
Follows(s, a) ==  \* nothing follows in a place that the journal has left, or has not begun in
    \E d \in s.decided : d.entry.id = a.entry.previous /\ d.entry.n + 1 = a.n /\ d.place = a.place /\ d.entry.place = a.place

(* [0023] The process that wrote the entry before leads: its is vote 0. Of the entry with which a journal begins nobody
   knows who wrote it [0045]. On one store there is no other ballot. *)
Leads(s, a) ==
    \/ Cardinality(a.place.stores) = 1
    \/ \E d \in s.decided :
          /\ d.entry.id = a.entry.previous /\ d.entry.by = a.by
          /\ ~\E former \in s.decided : former.entry = d.entry /\ former.place # a.place
Owns(s, a) ==
    IF a.ballot = 0 THEN Leads(s, a)
    ELSE IsMajority(StoresOf({c \in In(s.claims, a) : c.ballot = a.ballot /\ c.by = a.by}), a.place)

(* [0023] It has asked a majority: for the entry in a lower ballot and Nil in those between, or for Nil in all. *)
MayBeDecided(s, a) ==
    LET lower == {v \in In(s.votes, a) : v.ballot < a.ballot}
    IN  \E stores \in SUBSET a.place.stores, closed \in 0..a.ballot :
            /\ IsMajority(stores, a.place)
            /\ \A store \in stores, b \in 0..a.ballot - 1 :
                  \E v \in lower : v.store = store /\ v.ballot = b /\ (b >= closed => v.entry = Nil)
            /\ closed > 0 => \E v \in lower : v.store \in stores /\ v.ballot + 1 = closed /\ v.entry = a.entry

VoteRules(s, a) ==
    LET past == IsPast(s, a)
        same == {v \in In(s.votes, a) : v.ballot = a.ballot}
        is_entry == a.entry # Nil
        begins == Begins(s, a)
    IN  [the_store_counts |-> a.store \in a.place.stores \ s.lost,
         the_register_is_empty |-> a.store \notin StoresOf(same) \ s.lost,
         it_is_of_this_slot |-> is_entry => a.entry.n = a.n,
         it_follows_what_is_decided |-> is_entry => begins \/ Follows(s, a),
         a_snapshot_is_there_before |-> begins => IsMajority({x \in a.place.stores : NewestAt(s, x) >= a.n}, a.place),
         the_ballot_is_its_own |-> is_entry => past \/ Owns(s, a),
         a_ballot_has_one_entry |-> is_entry => \A v \in same : v.by = a.by => v.entry \in {a.entry, Nil},
         no_other_may_be_decided |-> is_entry => past \/ MayBeDecided(s, a)]

(* [0023] Whoever votes asks the store for its newest snapshot, too: a vote in a slot before that does not count. *)
VoteEffect(s, a) ==
    LET vote == [place |-> a.place, n |-> a.n, ballot |-> a.ballot, store |-> a.store, entry |-> a.entry, by |-> a.by,
                 counts |-> NewestAt(s, a.store) <= a.n]
        votes == s.votes \cup {vote}
        alike == {v \in votes : v.place = a.place /\ v.n = a.n /\ v.ballot = a.ballot /\ v.entry = a.entry /\ v.counts}
        is_decided == a.entry # Nil /\ IsMajority(StoresOf(alike), a.place)
    IN  [s EXCEPT !.votes = votes,
                  !.decided = IF is_decided THEN @ \cup {[place |-> a.place, entry |-> a.entry]} ELSE @]

-----------------------------------------------------------------------------
(* A snapshot, which may come late: the newest one of a store never gets older. *)

SnapshotRules(s, a) == [it_is_of_a_decided_entry |-> a.entry \in Decided(s)]

SnapshotEffect(s, a) ==
    IF NewestAt(s, a.store) >= a.entry.n THEN s
    ELSE [s EXCEPT !.snapshots = {x \in @ : x.store # a.store} \cup {[store |-> a.store, entry |-> a.entry]}]

-----------------------------------------------------------------------------
(* A store's registers of a slot are trimmed. *)

TrimRules(s, a) ==
    [the_store_has_a_later_snapshot |-> NewestAt(s, a.store) > a.n,
     a_majority_has_one |-> IsPast(s, a)]

TrimEffect(s, a) ==
    LET gone(r) == r.place = a.place /\ r.n = a.n /\ r.store = a.store /\ r.ballot \in a.ballots
    IN  [s EXCEPT !.votes = {v \in @ : ~gone(v)}, !.claims = {c \in @ : ~gone(c)}]

-----------------------------------------------------------------------------

Rules(s, a) ==
    CASE a.kind = "claim" -> ClaimRules(s, a)
      [] a.kind = "vote" -> VoteRules(s, a)
      [] a.kind = "snapshot" -> SnapshotRules(s, a)
      [] a.kind = "trim" -> TrimRules(s, a)
      [] a.kind = "wipe" -> [it_was_there |-> a.store \notin s.lost]

Effect(s, a) ==
    CASE a.kind = "claim" -> ClaimEffect(s, a)
      [] a.kind = "vote" -> VoteEffect(s, a)
      [] a.kind = "snapshot" -> SnapshotEffect(s, a)
      [] a.kind = "trim" -> TrimEffect(s, a)
      [] a.kind = "wipe" -> [s EXCEPT !.lost = @ \cup {a.store}]

-----------------------------------------------------------------------------

Invariants(s) ==
    [a_slot_has_one_entry |-> Cardinality({e.n : e \in Decided(s)}) = Cardinality(Decided(s)),
     the_entries_are_a_chain |-> {<<e.n, e.previous>> : e \in {e \in Decided(s) : e.n > 0}}
                                    \subseteq {<<e.n + 1, e.id>> : e \in Decided(s)},
     nothing_follows_where_the_journal_was |-> \A d \in {d \in s.decided : d.entry.place # d.place}, e \in s.decided :
        e.entry.n > d.entry.n => e.place # d.place]

StepInvariants(s, t, excused) ==
    [what_is_decided_stays |-> s.decided \subseteq t.decided,
     the_newest_snapshot_never_gets_older |-> \A x \in s.snapshots : NewestAt(t, x.store) >= x.entry.n]

-----------------------------------------------------------------------------
(* What a process finds that knows an entry, and asks any majority of a place: the next entry, else a later snapshot. An
   entry that moves the journal leads to its place, unless a later snapshot shows that it may be void. *)

Asked(s, known, stores) ==
    LET votes == {v \in In(s.votes, [place |-> known.place, n |-> known.entry.n + 1]) : v.store \in stores /\ v.entry # Nil}
        highest == {v \in votes : \A w \in votes : w.ballot <= v.ballot}
        next == {e \in {v.entry : v \in highest} : e.previous = known.entry.id}
        later == {x.entry : x \in {x \in s.snapshots : x.store \in stores /\ x.entry.n > known.entry.n}}
        stays == \A e \in next : e.place = known.place
    IN  IF next # {} /\ (stays \/ later = {}) THEN next
        ELSE IF later # {} THEN {e \in later : \A f \in later : f.n <= e.n}
        ELSE {known.entry}

Found(s, known) ==
    LET majorities == {stores \in SUBSET (known.place.stores \ s.lost) : IsMajority(stores, known.place)}
        of(e) == [entry |-> e, place |-> IF e.place.generation > known.place.generation THEN e.place ELSE known.place]
    IN  {of(e) : e \in UNION {Asked(s, known, stores) : stores \in majorities}}

RECURSIVE FoundInTheEnd(_, _)
FoundInTheEnd(s, all) ==
    LET next == UNION {Found(s, known) : known \in all} IN IF next = all THEN all ELSE FoundInTheEnd(s, next)

(* Whoever knows any entry, or only the stores of any place, finds the newest entry, and perhaps one that is about to follow
   it. If too many of the former stores are lost, there it finds nothing. *)
NothingIsLost(s) ==
    LET newest == CHOOSE e \in Decided(s) : \A d \in Decided(s) : d.n <= e.n
        last == CHOOSE d \in s.decided : \A e \in s.decided : e.place.generation <= d.place.generation
        first == CHOOSE d \in s.decided : d.entry.n = 0
        ends(known) == FoundInTheEnd(s, {known})
    IN  /\ ends([place |-> last.place, entry |-> first.entry]) # {}
        /\ \A d \in s.decided : \A e \in {d.entry, first.entry} :
              \A end \in ends([place |-> IF e = first.entry THEN d.place ELSE e.place, entry |-> e]) :
                 end.entry = newest \/ end.entry.previous = newest.id
=============================================================================
