use super::*;

const HEARTBEAT: Duration = Duration::from_secs(2);

/// Leases with a simulated clock, swept at the server's interval.
struct Scene {
    leases: Leases,
    now: Instant,
    lost: Vec<u64>,
}

impl Scene {
    fn new() -> Self {
        Self { leases: Leases::new(HEARTBEAT, 8), now: Instant::now(), lost: Vec::new() }
    }

    fn open(&mut self, actor: u64) -> StreamId {
        self.leases.open(actor, 1, "10.0.0.1:4000".to_owned(), self.now).0
    }

    fn pass(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.now = (self.now + HEARTBEAT / 4).min(end);
            self.lost.extend(self.leases.sweep(self.now).into_iter().map(|actor| actor.actor));
        }
    }

    fn states(&self) -> Vec<(u64, ActorState)> {
        self.leases.list(self.now).actors.into_iter().map(|actor| (actor.actor, actor.state())).collect()
    }
}

#[test]
fn an_actor_that_misses_three_heartbeats_is_lost_once_and_a_renewal_makes_it_live_again() {
    let mut scene = Scene::new();
    let stream = scene.open(7);
    for _ in 0..5 {
        scene.pass(2.0);
        assert_eq!(scene.leases.renew(stream, scene.now), Before::Live);
    }
    scene.pass(6.0);
    assert_eq!((scene.states(), scene.lost.len()), (vec![(7, ActorState::Live)], 0));
    scene.pass(60.0);
    assert_eq!((scene.states(), scene.lost.clone()), (vec![(7, ActorState::Lost)], vec![7]));
    assert_eq!(scene.leases.renew(stream, scene.now), Before::Lost);
    assert_eq!(scene.states(), [(7, ActorState::Live)]);
    scene.pass(7.0);
    assert_eq!((scene.lost.clone(), scene.leases.lost_total()), (vec![7, 7], 2));
}

#[test]
fn the_list_reports_a_silent_actor_as_it_was_last_known() {
    let mut scene = Scene::new();
    let stream = scene.open(7);
    scene.leases.arrived(stream, Some(12));
    scene.leases.arrived(stream, Some(13));
    scene.leases.answered(stream, 1);
    scene.pass(5.0);
    let list = scene.leases.list(scene.now);
    assert_eq!((u128::from(list.heartbeat_ms), list.lost_total), (HEARTBEAT.as_millis(), 0));
    let expected = Actor {
        actor: 7,
        epoch: 1,
        state: ActorState::Live.into(),
        address: "10.0.0.1:4000".to_owned(),
        since_ms: 5000,
        silent_ms: 5000,
        weights_version: Some(13),
        trajectories: 1,
        unanswered: 1,
        credit: 8,
    };
    assert_eq!(list.actors, [expected]);
}

#[test]
fn an_actor_that_sends_a_goodbye_drains_and_is_not_lost() {
    let mut scene = Scene::new();
    let stream = scene.open(7);
    scene.leases.goodbye(stream);
    assert_eq!(scene.states(), [(7, ActorState::Draining)]);
    scene.leases.closed(stream);
    assert_eq!(scene.states(), []);
    scene.pass(60.0);
    assert!(scene.lost.is_empty());
}

#[test]
fn an_actor_whose_stream_breaks_has_its_lease_to_come_back() {
    let mut scene = Scene::new();
    let (stays_away, comes_back) = (scene.open(1), scene.open(2));
    scene.leases.closed(stays_away);
    scene.leases.closed(comes_back);
    scene.pass(5.0);
    let again = scene.open(2);
    scene.pass(2.0);
    assert_eq!(scene.lost, [1]);
    assert_eq!(scene.leases.renew(again, scene.now), Before::Live);
    assert_eq!(scene.states(), [(1, ActorState::Lost), (2, ActorState::Live)]);
}

/// The trajectories of an earlier start use a separate stream, which sends a goodbye long before the main stream does.
#[test]
fn a_goodbye_on_one_stream_is_not_that_of_the_others() {
    let mut scene = Scene::new();
    let (current, spool) = (scene.open(7), scene.open(7));
    scene.leases.goodbye(spool);
    assert_eq!(scene.states(), [(7, ActorState::Live)]);
    scene.leases.closed(current);
    scene.leases.closed(spool);
    scene.pass(7.0);
    assert_eq!(scene.lost, [7], "the stream that broke was not made good");
}

#[test]
fn an_actor_that_restarts_is_listed_once_with_its_newest_epoch() {
    let mut scene = Scene::new();
    let killed = scene.open(7);
    scene.leases.closed(killed);
    scene.pass(3.0);
    let _ = scene.leases.open(7, 2, String::new(), scene.now);
    let _ = scene.leases.open(7, 1, String::new(), scene.now);
    let actors = scene.leases.list(scene.now).actors;
    assert_eq!((actors.len(), actors[0].epoch, actors[0].since_ms), (1, 2, 0));
}

#[test]
fn a_pause_of_the_server_itself_expires_no_lease() {
    let mut scene = Scene::new();
    let _ = scene.open(7);
    scene.pass(1.0);
    scene.now += Duration::from_secs(60);
    assert!(scene.leases.sweep(scene.now).is_empty());
    scene.pass(5.0);
    assert!(scene.lost.is_empty());
    scene.pass(2.0);
    assert_eq!(scene.lost, [7]);
}

#[test]
fn actors_lost_for_long_are_removed_and_the_table_is_bounded() {
    let mut scene = Scene::new();
    let first = scene.open(0);
    scene.leases.closed(first);
    scene.pass(7.0);
    for actor in 1..ACTORS_MAX as u64 {
        let _ = scene.open(actor);
    }
    assert_eq!(scene.states().len(), ACTORS_MAX);
    let _ = scene.open(1 << 20);
    let states = scene.states();
    assert_eq!((states.len(), states[0].0), (ACTORS_MAX, 1), "the lost one makes room");
    let unlisted = scene.open(1 << 21);
    assert_eq!(scene.states().len(), ACTORS_MAX);
    let _ = scene.leases.renew(unlisted, scene.now);
    scene.leases.closed(unlisted);

    let mut scene = Scene::new();
    let gone = scene.open(7);
    scene.leases.closed(gone);
    scene.pass(LOST_KEPT.as_secs_f64());
    assert_eq!(scene.states(), [(7, ActorState::Lost)]);
    scene.pass(1.0);
    assert_eq!(scene.states(), []);
}
