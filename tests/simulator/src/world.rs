//! The world of a run: the server with a disk, clients, network and time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::{Rng as _, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay_server::defect::Defect;
use replay_server::log::power_disk::{Faults, PowerDisk};
use run_file::replay::Settings;
use weights::WeightsVersion;

use crate::actor::Actor;
use crate::archive::Archived;
use crate::bus::{Arrival, Bus, Client, Packet, Service, Side};
use crate::learner::Learner;
use crate::oracle::{Checked, Oracle};
use crate::plan::{Kind, Step};
use crate::second::Second;
use crate::server::Server;
use crate::settings::settings;
use crate::trace::Trace;

/// Wall clock at the start of every run, in milliseconds since 1970.
const START_UNIX_MS: u64 = 1_700_000_000_000;

/// Maximum packets per delivery step.
const DELIVERIES_MAX: usize = 24;

/// State of a simulated run.
pub struct World {
    pub(crate) settings: Settings,
    /// Planted defect, if there is one.
    pub(crate) defect: Option<Defect>,
    pub(crate) trace: Trace,
    /// Random numbers of the current step.
    pub(crate) rng: ChaCha8Rng,
    /// Virtual time since the start of the run, in nanoseconds.
    pub(crate) now_ns: u64,
    base: Instant,
    /// Offset of the wall clock from virtual time, in milliseconds.
    pub(crate) wall_offset_ms: i64,
    pub(crate) disk: PowerDisk,
    pub(crate) faults: Faults,
    pub(crate) archive: Archived,
    pub(crate) server: Option<Server>,
    pub(crate) second: Second,
    pub(crate) bus: Bus,
    pub(crate) actors: Vec<Actor>,
    pub(crate) learner: Learner,
    pub(crate) oracle: Oracle,
    /// Last copy of the server's files, with the promises at that time.
    pub(crate) snapshot: Option<(BTreeMap<String, Vec<u8>>, Oracle)>,
    /// Number of the last game of any actor.
    pub(crate) serial: u32,
    pub(crate) newest: WeightsVersion,
    /// Sequence number of the next trajectory, per hostile actor.
    pub(crate) hostile_next: [u64; 4],
    /// Priority of the next item that must be drawn first.
    pub(crate) next_priority: f64,
    /// Flipped bits of heads: file, offset and bits.
    pub(crate) head_damage: Vec<(String, usize, u8)>,
    /// True while a slow disk makes each commit take long.
    pub(crate) is_slow: bool,
}

impl World {
    /// Creates the world of a seed, with a running server.
    pub(crate) fn new(seed: u64, trace: Trace, defect: Option<Defect>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        let base = Instant::now();
        let actors = (0..rng.random_range(2..=4)).map(|index| Actor::new(index as u64 + 1)).collect();
        Self {
            settings: settings(seed),
            defect,
            trace,
            now_ns: 0,
            base,
            wall_offset_ms: 0,
            disk: PowerDisk::new(seed),
            faults: Faults::default(),
            archive: Archived::default(),
            server: None,
            second: Second::new(seed, base),
            bus: Bus::default(),
            actors,
            learner: Learner::default(),
            oracle: Oracle::default(),
            snapshot: None,
            serial: 0,
            newest: WeightsVersion(1),
            hostile_next: [0; 4],
            next_priority: 10.0,
            head_damage: Vec::new(),
            is_slow: false,
            rng,
        }
    }

    /// Returns the virtual time as the server's clock.
    pub(crate) fn instant(&self) -> Instant {
        self.base + Duration::from_nanos(self.now_ns)
    }

    /// Returns the wall clock, in milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        (START_UNIX_MS + self.now_ns / 1_000_000).saturating_add_signed(self.wall_offset_ms)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now_ns += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Records an event.
    pub(crate) fn note(&mut self, branch: &'static str, sentence: impl Into<String>) {
        self.trace.fired(branch);
        self.trace.event(sentence.into());
    }

    /// Executes a step.
    pub(crate) fn step(&mut self, step: Step) -> Checked {
        self.rng = ChaCha8Rng::seed_from_u64(step.salt);
        let seed = self.rng.next_u64();
        self.disk.reseed(seed);
        let micros = self.rng.random_range(0..5_000);
        self.pass(Duration::from_micros(micros));
        self.trace.bytes(&[step.kind as u8]);
        match step.kind {
            Kind::Play => self.play_one(),
            Kind::Look => self.look(),
            Kind::Deliver => self.deliver_some(),
            Kind::Commit => {
                let most = self.rng.random_range(1..40);
                self.commit(most)
            }
            Kind::CommitAndCrash => self.commit_and_crash(),
            Kind::Learn => {
                self.learn();
                Ok(())
            }
            Kind::Tick => self.tick(),
            Kind::Wait => {
                let ms = [50, 400, 3_000, 20_000][self.rng.random_range(0..4_usize)];
                self.note("time passes", format!("{ms} ms pass"));
                self.pass(Duration::from_millis(ms));
                self.look()
            }
            Kind::Operate => self.operate(),
            Kind::Revise => self.revise(),
            Kind::Prioritise => self.prioritise(),
            Kind::Probe => self.probe(),
            Kind::CutStream => {
                self.cut_stream();
                Ok(())
            }
            Kind::CrashServer => self.crash("the process of the server ends"),
            Kind::LosePower => self.lose_power(),
            Kind::DrainServer => self.drain_server(),
            Kind::StartServer => self.start_if_down(),
            Kind::CrashActor => self.end_actor(crate::actor::End::Crash),
            Kind::DrainActor => self.end_actor(crate::actor::End::Drain),
            Kind::LoseHome => self.end_actor(crate::actor::End::HomeLost),
            Kind::FillDisk | Kind::FailSyncs | Kind::FailDisk | Kind::HealDisk => {
                self.change_faults(step.kind);
                Ok(())
            }
            Kind::Rot => self.rot(),
            Kind::Snapshot => {
                self.take_snapshot();
                Ok(())
            }
            Kind::LoseDisk => self.lose_disk(),
            Kind::Archive => self.archive(),
            Kind::JumpClock => {
                self.jump_clock();
                Ok(())
            }
            Kind::Attack => self.attack(),
        }
    }

    fn jump_clock(&mut self) {
        let hours = self.rng.random_range(-30..=30_i64);
        self.wall_offset_ms += hours * 3_600_000;
        self.note("clock jumps", format!("the wall clock jumps by {hours} h"));
    }

    fn cut_stream(&mut self) {
        let side = [Side::Client, Side::Server, Side::Both][self.rng.random_range(0..3_usize)];
        if let Some((id, client)) = self.bus.cut(side, &mut self.rng) {
            self.note("stream cut", format!("stream {id} of {client:?} breaks for {side:?}"));
        }
    }

    /// Delivers some packets, often of one stream.
    fn deliver_some(&mut self) -> Checked {
        let burst = self.rng.random_range(1..=DELIVERIES_MAX);
        let mut sticky = None;
        for _ in 0..burst {
            let again = sticky.and_then(|(id, side)| self.bus.deliver_of(id, side));
            let Some(arrival) = again.or_else(|| self.bus.deliver(&mut self.rng)) else { break };
            sticky = self.rng.random_bool(0.5).then_some(match &arrival {
                Arrival::AtServer(id, ..) => (*id, Side::Server),
                Arrival::AtClient(id, ..) => (*id, Side::Client),
            });
            self.arrive(arrival)?;
        }
        Ok(())
    }

    /// Delivers all packets in transit, and the packets sent in response.
    pub(crate) fn deliver_all(&mut self) -> Checked {
        while let Some(arrival) = self.bus.deliver(&mut self.rng) {
            self.arrive(arrival)?;
        }
        Ok(())
    }

    fn arrive(&mut self, arrival: Arrival) -> Checked {
        match arrival {
            Arrival::AtServer(id, Service::Insert, packet) => self.insert_message(id, packet),
            Arrival::AtServer(id, Service::InsertSecond, packet) => {
                self.second_message(id, packet);
                Ok(())
            }
            Arrival::AtServer(id, Service::Sample, packet) => self.sample_message(id, packet),
            Arrival::AtClient(id, Client::Actor { index, uplink }, packet) => {
                self.actor_message(index, uplink, id, packet)
            }
            Arrival::AtClient(id, Client::Learner, packet) => self.learner_message(id, packet),
            Arrival::AtClient(id, Client::Hostile, packet) => {
                if let Packet::End(_) = packet {
                    self.bus.client_left(id);
                }
                Ok(())
            }
        }
    }

    /// Lets every client check the time and its streams.
    pub(crate) fn look(&mut self) -> Checked {
        for index in 0..self.actors.len() {
            self.pump(index);
        }
        self.learn();
        self.turn_second()
    }
}
