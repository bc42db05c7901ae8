------------------------------ MODULE Groups ------------------------------
(* A consumer group: what each entry of its journal may say.

   Written from docs/design/0026 and Kafka's group protocol, not from the code, in the form of Replication.tla: `g` is
   the group, `a` an action, Rules(g, a) the conditions, Effect(g, a) the group after it. What members want and what
   they tell each other is left out. *)

EXTENDS Naturals, Sequences, FiniteSets

Range(sequence) == {sequence[i] : i \in DOMAIN sequence}
Allowed(rules) == \A name \in DOMAIN rules : rules[name]

-----------------------------------------------------------------------------
(* The state.

     phase       Empty, PreparingRebalance, CompletingRebalance, Stable or Dead
     generation  how many there have been
     members     in the order in which they joined, a leader that was passed over last: their id, `instance`
                 (group.instance.id, "" for a dynamic member), the first generation in which they take part, whether
                 they have joined the newest rebalance, and the partitions that they were assigned
     leader      the member that assigns the work, "" for none
     offsets     committed offsets, each with its partition and its newest rewind
     rewinds     how many there have been *)

New == [phase |-> "Empty", generation |-> 0, members |-> << >>, leader |-> "", offsets |-> {}, rewinds |-> 0]

Ids(g) == {m.id : m \in Range(g.members)}
Member(g, id) == CHOOSE m \in Range(g.members) : m.id = id
Joined(g) == SelectSeq(g.members, LAMBDA m : m.joined)
Changed(g, Change(_)) == [g EXCEPT !.members = [i \in DOMAIN @ |-> Change(@[i])]]

Committed(g, partition) == {o \in g.offsets : o.partition = partition}

(* New offsets take the place of those of the same partitions. *)
With(g, new) ==
    LET named == {o.partition : o \in new} IN [g EXCEPT !.offsets = {o \in @ : o.partition \notin named} \cup new]

-----------------------------------------------------------------------------
(* All members have to join again. *)

RebalanceEffect(g) ==
    LET out(m) == [m EXCEPT !.joined = FALSE] IN [Changed(g, out) EXCEPT !.phase = "PreparingRebalance"]

(* A member joins, or joins again. A new one takes part from the next generation on. *)
JoinRules(g, a) ==
    [a_rebalance_waits |-> g.phase = "PreparingRebalance",
     an_instance_has_one_member |-> a.instance = "" \/ \A m \in Range(g.members) : m.instance = a.instance => m.id = a.id,
     a_member_keeps_its_instance |-> a.id \in Ids(g) => Member(g, a.id).instance = a.instance]
JoinEffect(g, a) ==
    LET again(m) == IF m.id = a.id THEN [m EXCEPT !.joined = TRUE] ELSE m
        new == [id |-> a.id, instance |-> a.instance, first |-> g.generation + 1, joined |-> TRUE, owns |-> {}]
    IN  IF a.id \in Ids(g) THEN Changed(g, again) ELSE [g EXCEPT !.members = Append(@, new)]

(* A process takes the place of a static member, with its assignment. In a rebalance it has joined with that. *)
ReplaceRules(g, a) ==
    [it_is_new |-> a.id \notin Ids(g),
     it_has_the_instance |-> a.former \in Ids(g) /\ a.instance # "" /\ Member(g, a.former).instance = a.instance,
     nobody_assigns_work |-> g.phase \in {"Stable", "PreparingRebalance"}]
ReplaceEffect(g, a) ==
    LET place(m) == IF m.id = a.former
                    THEN [m EXCEPT !.id = a.id, !.joined = @ \/ g.phase = "PreparingRebalance"] ELSE m
    IN  [Changed(g, place) EXCEPT !.leader = IF @ = a.former THEN a.id ELSE @]

(* Members leave, expire, or are too late to join or to assign the work. A static one is never late. *)
RemoveRules(g, a) ==
    [they_are_members |-> a.ids \subseteq Ids(g) /\ a.ids # {},
     a_rebalance_waits |-> g.phase = "PreparingRebalance",
     the_late_did_not_join |-> a.reason = "late" => \A id \in a.ids \cap Ids(g) :
        /\ Member(g, id).instance = ""
        /\ (~Member(g, id).joined \/ (a.syncs /\ a.ids = {g.leader}))]  \* the leader assigned nothing
RemoveEffect(g, a) == [g EXCEPT !.members = SelectSeq(@, LAMBDA m : m.id \notin a.ids)]

(* A static leader has assigned nothing in time: it stays, as the last of the members. *)
PassOverRules(g, a) ==
    [a_rebalance_waits |-> g.phase = "PreparingRebalance",
     it_assigned_nothing |-> a.syncs /\ g.leader = a.id,
     it_is_static |-> a.id \in Ids(g) /\ Member(g, a.id).instance # ""]
PassOverEffect(g, a) ==
    [g EXCEPT !.leader = "",
              !.members = SelectSeq(@, LAMBDA m : m.id # a.id) \o SelectSeq(@, LAMBDA m : m.id = a.id)]

(* The next generation. Its leader stays if it has joined; otherwise the first one that has joined leads. *)
BeginRules(g, a) ==
    [a_rebalance_waits |-> g.phase = "PreparingRebalance",
     all_have_joined |-> \A m \in Range(g.members) : m.joined \/ m.instance # "",
     the_leader_stays_or_is_the_first |->
        IF g.members = << >> THEN a.leader = ""
        ELSE IF g.leader \in {m.id : m \in Range(Joined(g))} THEN a.leader = g.leader
        ELSE Joined(g) # << >> /\ a.leader = Joined(g)[1].id]
BeginEffect(g, a) ==
    [g EXCEPT !.phase = IF g.members = << >> THEN "Empty" ELSE "CompletingRebalance", !.generation = @ + 1,
              !.leader = a.leader]

(* The leader assigns the work: no partition to two members. *)
AssignRules(g, a) ==
    [a_generation_waits_for_it |-> g.phase = "CompletingRebalance",
     they_are_members |-> {share.id : share \in a.shares} \subseteq Ids(g),
     each_partition_has_one_owner |-> \A x, y \in a.shares : x.id # y.id => x.owns \cap y.owns = {}]
AssignEffect(g, a) ==
    LET given(m) == [m EXCEPT !.owns = UNION {share.owns : share \in {x \in a.shares : x.id = m.id}}]
    IN  [Changed(g, given) EXCEPT !.phase = "Stable"]

(* What a commit is accepted by: `c` names the member and the generation whose assignment it has taken. The journal does
   not keep what a commit named, so only GroupsModel uses this. *)
RewindOf(g, partition) == IF Committed(g, partition) = {} THEN 0 ELSE (CHOOSE o \in Committed(g, partition) : TRUE).rewind
Accepted(g, c) ==
    /\ c.id \in Ids(g)
    /\ c.generation = g.generation
    /\ Member(g, c.id).first <= g.generation
    /\ g.phase # "CompletingRebalance"

(* A commit, by a member of the generation or, while there is no member, by a simple consumer. *)
CommitRules(g, a) ==
    [a_member_commits_or_there_is_none |-> IF a.id = "" THEN g.members = << >> ELSE a.id \in Ids(g),
     no_generation_waits_for_its_work |-> a.id # "" => g.phase \in {"Stable", "PreparingRebalance"},
     it_takes_part |-> a.id \in Ids(g) => Member(g, a.id).first <= g.generation,
     nobody_else_owns_it |-> \A m \in Range(g.members), o \in a.offsets : m.id # a.id => o.partition \notin m.owns,
     (* Members read on from the committed offsets, so only a rewind moves these back: unless they seek, or an unclean
       election cuts what they have read. *)
     it_does_not_go_back |-> \A o \in a.offsets : \A known \in Committed(g, o.partition) :
                                a.may_go_back \/ known.offset <= o.offset]
CommitEffect(g, a) ==
    With(g, {[partition |-> o.partition, offset |-> o.offset, rewind |-> RewindOf(g, o.partition)] : o \in a.offsets})

(* A rewind, while there is no member: those that join later begin at the committed offsets. *)
ResetEffect(g, a) ==
    LET rewound == With(g, {[partition |-> o.partition, offset |-> o.offset, rewind |-> g.rewinds + 1] : o \in a.offsets})
    IN  [rewound EXCEPT !.rewinds = @ + 1]

-----------------------------------------------------------------------------

Rules(g, a) ==
    CASE a.kind = "start" -> [there_is_none |-> g.phase = "Dead" \/ (g = New)]
      [] a.kind = "rebalance" -> [none_waits |-> g.phase \in {"Empty", "CompletingRebalance", "Stable"}]
      [] a.kind = "join" -> JoinRules(g, a)
      [] a.kind = "replace" -> ReplaceRules(g, a)
      [] a.kind = "remove" -> RemoveRules(g, a)
      [] a.kind = "pass over" -> PassOverRules(g, a)
      [] a.kind = "begin" -> BeginRules(g, a)
      [] a.kind = "assign" -> AssignRules(g, a)
      [] a.kind = "commit" -> CommitRules(g, a)
      [] a.kind = "reset" -> [nobody_is_a_member |-> g.members = << >>, it_has_offsets |-> a.offsets # {}]
      [] a.kind = "forget" -> [nobody_is_a_member |-> g.members = << >>,
                               they_are_committed |-> \A p \in a.partitions : Committed(g, p) # {}]
      [] a.kind = "delete" -> [nobody_is_a_member |-> g.members = << >>]

Effect(g, a) ==
    CASE a.kind = "start" -> [g EXCEPT !.phase = "Empty"]  \* the numbers of a former group go on
      [] a.kind = "rebalance" -> RebalanceEffect(g)
      [] a.kind = "join" -> JoinEffect(g, a)
      [] a.kind = "replace" -> ReplaceEffect(g, a)
      [] a.kind = "remove" -> RemoveEffect(g, a)
      [] a.kind = "pass over" -> PassOverEffect(g, a)
      [] a.kind = "begin" -> BeginEffect(g, a)
      [] a.kind = "assign" -> AssignEffect(g, a)
      [] a.kind = "commit" -> CommitEffect(g, a)
      [] a.kind = "reset" -> ResetEffect(g, a)
      [] a.kind = "forget" -> [g EXCEPT !.offsets = {o \in @ : o.partition \notin a.partitions}]
      [] a.kind = "delete" -> [g EXCEPT !.phase = "Dead", !.offsets = {}]

-----------------------------------------------------------------------------

Invariants(g) ==
    [an_empty_group_has_no_member |-> g.phase \in {"Empty", "Dead"} <=> g.members = << >>,
     all_of_a_generation_have_joined |-> g.phase \in {"CompletingRebalance", "Stable"} =>
        \A m \in Range(g.members) : m.first <= g.generation /\ (m.joined \/ m.instance # ""),
     the_leader_is_a_member |-> g.phase \in {"CompletingRebalance", "Stable"} => g.leader \in Ids(g),
     a_partition_has_one_owner |-> g.phase = "Stable" => \A m, n \in Range(g.members) : m.id # n.id => m.owns \cap n.owns = {},
     rewinds_are_counted |-> \A o \in g.offsets : o.rewind <= g.rewinds]

StepInvariants(g, h, rewound) ==
    [generations_go_up_one_by_one |-> h.generation \in {g.generation, g.generation + 1},
     the_count_of_rewinds_never_goes_back |-> h.rewinds >= g.rewinds,
     offsets_go_back_only_by_a_rewind |-> rewound \/ \A o \in g.offsets, p \in h.offsets :
        o.partition = p.partition /\ o.rewind = p.rewind => o.offset <= p.offset]
=============================================================================
