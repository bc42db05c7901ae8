---------------------------- MODULE Replication ----------------------------
(* Replication of one partition: what each entry of a topic's journal may say.

   Written from the rules in docs/design (their numbers are in brackets) and Kafka's, not from the code. `s` is the state
   of the partition, `a` an action, which is what one decision does to the partition:

     Rules(s, a)    the conditions of the action, by name: it is allowed if all are true
     Effect(s, a)   the state after it

   ReplicationModel explores all actions of a small partition. ReplicationTrace follows the actions of a recorded journal.
   A piece is a chunk or a segment: rows from `base` up to `end` (which is not one of them) in the file `id`. *)

EXTENDS Naturals, Sequences, FiniteSets

None == "no node"

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}
Least(numbers) == CHOOSE x \in numbers : \A y \in numbers : x <= y
Greatest(numbers) == CHOOSE x \in numbers : \A y \in numbers : x >= y
Allowed(rules) == \A name \in DOMAIN rules : rules[name]

-----------------------------------------------------------------------------
(* The state.

     order            the assigned nodes, preferred leader first
     adding, removing nodes of a reassignment: `order` has both until it ends [18]
     fenced, suspects nodes
     isr, leader, epoch, from     `from` is the first offset of the leader epoch
     start, hw, end   log start, high watermark and end of the log
     pieces           the log, oldest first, each piece with its holders
     min, quorum      min.insync.replicas, and whether replication.mode is quorum *)

New(order, min, quorum) ==
    [order |-> order, adding |-> {}, removing |-> {}, fenced |-> {}, suspects |-> {},
     isr |-> Range(order), leader |-> order[1], epoch |-> 0, from |-> 0, start |-> 0, hw |-> 0, end |-> 0,
     pieces |-> << >>, min |-> min, quorum |-> quorum]

Replicas(s) == Range(s.order)

(* [12] A replica's LEO is the end of the rows, without a gap from the log start, that are in files which it holds. *)
Leo(s, n) ==
    LET lacking == {i \in DOMAIN s.pieces : n \notin s.pieces[i].holders}
    IN  IF lacking = {} THEN s.end ELSE Greatest({s.start, s.pieces[Least(lacking)].base})

(* During a reassignment the smaller of the numbers of replicas before and after it counts [18, KIP-455]. *)
Factor(s) == Cardinality(Replicas(s)) - Greatest({Cardinality(s.adding), Cardinality(s.removing)})
Majority(s) == Cardinality(Replicas(s)) \div 2 + 1
Required(s) == IF s.quorum THEN Majority(s) ELSE Least({s.min, Factor(s)})
Voters(s) == IF s.quorum THEN Replicas(s) ELSE s.isr

(* [12, KIP-966] The HW is the lowest LEO of the ISR, and waits while the ISR is too small. [12] Of a quorum it is the
   highest offset that a majority has reached. *)
Advanced(s) ==
    LET ends == {Leo(s, n) : n \in Voters(s)}
        reached == IF s.quorum
                   THEN {e \in ends : Cardinality({n \in Replicas(s) : Leo(s, n) >= e}) >= Majority(s)}
                   ELSE IF s.isr = {} \/ Cardinality(s.isr) < Required(s) THEN {} ELSE {Least(ends)}
    IN  [s EXCEPT !.hw = Greatest({s.hw} \cup reached)]

(* [12] A replica is in sync again when its LEO has reached the HW and the start of the leader epoch. The HW is first: a
   replica that lacks rows which the same entry commits is not in sync. *)
MayJoin(s, n) == n \in Replicas(s) \ (s.isr \cup s.fenced) /\ Leo(s, n) >= Greatest({s.hw, s.from})
Settled(s, nodes) ==
    LET a == Advanced(s) IN Advanced([a EXCEPT !.isr = @ \cup {n \in nodes : MayJoin(a, n)}])

FirstOf(s, nodes) == s.order[Least({i \in DOMAIN s.order : s.order[i] \in nodes})]
Alive(s, nodes) == [s EXCEPT !.suspects = @ \ nodes]

Without(piece, n) == [piece EXCEPT !.holders = @ \ {n}]
Gone(s, n, ids) ==  \* node n no longer holds these files
    [s EXCEPT !.pieces = [i \in DOMAIN @ |-> IF @[i].id \in ids THEN Without(@[i], n) ELSE @[i]]]

Files(s) == {p.id : p \in Range(s.pieces)}

(* [9] A segment replaces whole pieces. *)
Whole(s, g) == \E i, j \in DOMAIN s.pieces : i <= j /\ s.pieces[i].base = g.base /\ s.pieces[j].end = g.end
Cut(s, end) ==
    [s EXCEPT !.pieces = SelectSeq(@, LAMBDA p : p.end <= end), !.hw = Least({@, end}), !.end = end]
HandedTo(s, n) == [s EXCEPT !.leader = n, !.epoch = @ + 1, !.from = s.end]

-----------------------------------------------------------------------------
(* A batch, with the rows that it adds to the partition [12]. With acks=all the ISR is then those members that have every
   row, and the first of them leads if the leader is not among them. *)

RECURSIVE Grown(_, _)
Grown(s, rows) ==
    IF rows = << >> THEN s
    ELSE LET r == Head(rows)
             p == [id |-> r.id, base |-> s.end, end |-> s.end + r.rows, holders |-> r.holders]
         IN  Grown([s EXCEPT !.pieces = Append(@, p), !.end = p.end], Tail(rows))

Holding(s, a) == LET g == Grown(s, a.rows) IN {n \in Voters(s) \ s.fenced : Leo(g, n) = g.end}

AppendRules(s, a) ==
    [has_rows |-> a.rows # << >> /\ \A r \in Range(a.rows) : r.rows > 0,
     enough_replicas_hold_it |-> a.acks = "all" => Cardinality(Holding(s, a)) >= Greatest({1, Required(s)}),
     the_leader_holds_it |-> a.acks # "all" => s.leader \in Holding(s, a)]

AppendEffect(s, a) ==
    LET holding == Holding(s, a)
        led == IF a.acks # "all" \/ s.leader \in holding THEN s ELSE HandedTo(s, FirstOf(s, holding))
        g == Grown(IF a.acks = "all" THEN [led EXCEPT !.isr = holding] ELSE led, a.rows)
    IN  Alive(Settled(g, {n \in Replicas(g) : Leo(g, n) = g.end}), a.nodes)

-----------------------------------------------------------------------------
(* A node has copied files [12]. *)

HoldEffect(s, a) ==
    LET more(p) == IF p.id \in a.ids THEN [p EXCEPT !.holders = @ \cup {a.node}] ELSE p
    IN  Alive(Settled([s EXCEPT !.pieces = [i \in DOMAIN @ |-> more(@[i])]], {a.node}), {a.node})

-----------------------------------------------------------------------------
(* Members leave the ISR because they lag behind the leader [15]. *)

ShrinkRules(s, a) ==
    [members_leave |-> a.isr \subseteq s.isr /\ a.isr # s.isr,
     the_leader_stays |-> s.leader \in a.isr,
     those_that_leave_lag |-> \A n \in s.isr \ a.isr : s.leader = None \/ Leo(s, n) < Leo(s, s.leader)]

ShrinkEffect(s, a) == Settled([s EXCEPT !.isr = a.isr], {})

-----------------------------------------------------------------------------
(* Elections [15]. Which nodes were live is not in the journal: here any may have been. *)

Replaceable(s) == s.leader \in {None} \cup s.suspects \cup s.fenced \/ s.leader \notin s.isr

(* [12] A quorum elects the highest LEO of a live majority, and only with every committed row. *)
CleanlyElectable(s) ==
    IF s.quorum
    THEN {n \in Replicas(s) \ s.fenced :
            /\ Leo(s, n) >= s.hw
            /\ Cardinality({m \in Replicas(s) \ s.fenced : Leo(s, m) <= Leo(s, n)}) >= Majority(s)}
    ELSE s.isr \ s.fenced
IsClean(s, a) == a.leader = None \/ a.leader \in CleanlyElectable(s)

ElectRules(s, a) ==
    LET clean == IsClean(s, a)
        ours == a.leader \in Replicas(s) \ s.fenced
    IN  [the_epoch_rises_by_one |-> a.epoch = s.epoch + 1,
         a_replica_in_service_leads |-> ours \/ a.leader = None,
         (* [18] A leader that serves is only replaced without loss: by a preferred or a reassigned one. *)
         the_leader_may_go |-> Replaceable(s) \/ a.start = s.end,
         what_is_cut_is_recorded |-> a.lost = s.end - a.start,
         no_leader_cuts_nothing |-> a.leader = None => Replaceable(s) /\ s.leader # None /\ a.start = s.end
                                                                      /\ a.isr = s.isr,
         the_epoch_begins_at_its_leo |-> ours => a.start = Leo(s, a.leader),
         only_absent_members_leave |-> ours /\ clean =>
            a.isr \subseteq s.isr \cup {a.leader} /\ s.isr \ a.isr \subseteq s.suspects \cup s.fenced,
         it_is_in_the_isr |-> ours => a.leader \in a.isr,
         an_unclean_leader_is_alone |-> clean \/ a.isr = {a.leader}]

ElectEffect(s, a) ==
    LET cut == Cut(s, a.start)
        led == IF a.leader = None THEN [cut EXCEPT !.leader = None, !.epoch = @ + 1] ELSE HandedTo(cut, a.leader)
    IN  Settled([led EXCEPT !.isr = a.isr], {})

-----------------------------------------------------------------------------
(* A node is wiped, and joins again with nothing; or an operator fences it [18]. *)

RenewEffect(s, a) ==
    LET empty == Gone(s, a.node, Files(s)) IN Alive(Settled([empty EXCEPT !.isr = @ \ {a.node}], {}), {a.node})

FenceEffect(s, a) ==
    Settled([s EXCEPT !.fenced = @ \cup {a.node}, !.isr = IF @ = {a.node} THEN @ ELSE @ \ {a.node}], {})

-----------------------------------------------------------------------------
(* A reassignment begins, ends, or is replaced by another one, perhaps back to the nodes before it [18]. *)

AlterRules(s, a) ==
    LET nodes == Range(a.order)
        ends == a.adding = {} /\ a.removing = {} /\ s.adding \subseteq nodes
    IN  [the_leader_stays |-> s.leader \in nodes \cup {None},
         some_of_the_isr_stays |-> s.isr = {} \/ s.isr \cap nodes # {},
         the_names_fit |-> a.adding \cup a.removing \subseteq nodes /\ a.adding \cap a.removing = {},
         it_ends_in_sync |-> ends => s.adding \subseteq s.isr /\ Replicas(s) \ nodes = s.removing,
         only_new_nodes_leave_before |-> ends \/ Replicas(s) \ nodes \subseteq s.adding,
         a_majority_keeps_what_is_committed |-> s.quorum /\ ends =>
            Cardinality({n \in nodes : Leo(s, n) >= s.hw}) >= Cardinality(nodes) \div 2 + 1]

AlterEffect(s, a) ==
    LET moved == [s EXCEPT !.order = a.order, !.adding = a.adding, !.removing = a.removing,
                           !.isr = @ \cap Range(a.order)]
    IN  Settled(moved, {})

-----------------------------------------------------------------------------
(* Segments replace rows below the HW if the whole ISR holds them [9]. *)

HeldByAll(s, g) ==
    LET holding == g.holders \cap Replicas(s)
    IN  /\ Cardinality(s.isr) >= Greatest({1, Required(s)})
        /\ s.isr \subseteq holding
        /\ s.quorum => Cardinality({n \in holding : Leo(s, n) >= s.hw}) >= Majority(s)

SwapRules(s, a) ==
    LET g == a.segment
    IN  [it_is_committed |-> g.end <= s.hw,
         it_replaces_whole_pieces |-> Whole(s, g),
         the_isr_holds_it |-> HeldByAll(s, g)]

SwapEffect(s, a) ==
    LET g == a.segment
        new == [id |-> g.id, base |-> g.base, end |-> g.end, holders |-> g.holders]
        before == SelectSeq(s.pieces, LAMBDA p : p.end <= g.base)
        after == SelectSeq(s.pieces, LAMBDA p : p.base >= g.end)
    IN  [s EXCEPT !.pieces = before \o <<new>> \o after]

-----------------------------------------------------------------------------
(* The log start moves by retention or delete-records: never above the HW. *)

StartEffect(s, a) ==
    [s EXCEPT !.start = a.start, !.from = Greatest({@, a.start}),
              !.pieces = SelectSeq(@, LAMBDA p : p.end > a.start)]

-----------------------------------------------------------------------------

Rules(s, a) ==
    CASE a.kind = "append" -> AppendRules(s, a)
      [] a.kind = "shrink" -> ShrinkRules(s, a)
      [] a.kind = "elect" -> ElectRules(s, a)
      [] a.kind = "alter" -> AlterRules(s, a)
      [] a.kind = "swap" -> SwapRules(s, a)
      [] a.kind = "suspect" -> [it_was_not_suspected |-> a.node \notin s.suspects]
      [] a.kind = "cancel" -> [it_was_suspected |-> a.node \in s.suspects]
      [] a.kind = "fence" -> [it_was_not_fenced |-> a.node \notin s.fenced]
      [] a.kind = "unfence" -> [it_was_fenced |-> a.node \in s.fenced]
      [] a.kind = "start" -> [it_moves_on |-> a.start > s.start, it_is_committed |-> a.start <= s.hw]
      [] a.kind \in {"hold", "seen", "renew", "config"} -> [always |-> TRUE]

Effect(s, a) ==
    CASE a.kind = "append" -> AppendEffect(s, a)
      [] a.kind = "hold" -> HoldEffect(s, a)
      [] a.kind = "seen" -> Alive(s, a.nodes)  \* a batch without rows for this partition
      [] a.kind = "shrink" -> ShrinkEffect(s, a)
      [] a.kind = "elect" -> ElectEffect(s, a)
      [] a.kind = "renew" -> RenewEffect(s, a)
      [] a.kind = "fence" -> FenceEffect(s, a)
      [] a.kind = "unfence" -> [s EXCEPT !.fenced = @ \ {a.node}]
      [] a.kind = "alter" -> AlterEffect(s, a)
      [] a.kind = "swap" -> SwapEffect(s, a)
      [] a.kind = "suspect" -> [s EXCEPT !.suspects = @ \cup {a.node}]
      [] a.kind = "cancel" -> Alive(s, {a.node})
      [] a.kind = "start" -> StartEffect(s, a)
      [] a.kind = "config" -> [s EXCEPT !.min = a.min]

-----------------------------------------------------------------------------
(* What holds after every entry, by name. *)

Invariants(s) ==
    [offsets_are_in_order |-> s.start <= s.hw /\ s.hw <= s.end,
     the_log_has_no_gap |-> /\ \A i \in 1..Len(s.pieces) - 1 : s.pieces[i].end = s.pieces[i + 1].base
                            /\ s.pieces # << >> => s.pieces[1].base <= s.start /\ s.pieces[Len(s.pieces)].end = s.end
                            /\ s.pieces = << >> => s.start = s.end,
     the_isr_is_of_the_replicas |-> s.isr \subseteq Replicas(s),
     the_isr_has_what_is_committed |-> s.quorum \/ \A n \in s.isr : Leo(s, n) >= s.hw,
     the_leader_is_in_sync |-> s.leader = None \/ (s.leader \in s.isr /\ Leo(s, s.leader) = s.end),
     the_leader_is_not_fenced |-> s.leader \notin s.fenced]

(* What holds between the states before and after an entry; `unclean` says whether it elected an unclean leader. *)
StepInvariants(s, t, unclean) ==
    [the_log_start_never_goes_back |-> t.start >= s.start,
     the_hw_never_goes_back |-> t.hw >= s.hw \/ unclean,
     (* [18, KIP-455] A reassignment ends when the new nodes are in sync, which may leave fewer than min.insync.replicas. *)
     what_is_committed_is_on_enough_nodes |-> t.hw > s.hw /\ t.order = s.order =>
        LET having == Cardinality({n \in Replicas(t) : Leo(t, n) >= t.hw})
        IN  IF t.quorum THEN 2 * having > Cardinality(Replicas(t)) ELSE having >= Least({t.min, Factor(t)}),
     the_epoch_never_goes_back |-> t.epoch >= s.epoch,
     an_epoch_has_one_leader |-> t.leader # s.leader => t.epoch > s.epoch,
     (* [18] One that was fenced as the last member stays, until another one joins and is elected. *)
     a_fenced_node_does_not_join |-> t.isr \cap t.fenced \subseteq s.isr]
=============================================================================
