//! Runs the processes, each on its own host, and injects faults into them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use experience::TrajectoryId;
use fleet::Role;
use fleet::wiring::{self, Wiring};
use tempfile::TempDir;

use super::fault::{Fault, Kind, Service};
use super::ledger::Ledger;
use super::network::Network;
use super::recovery::Recovery;
use super::schedule::Round;
use super::switch::{Host, Link};
use super::watch::{Promises, Seen, Watch};
use super::witness::Witness;
use crate::cluster::{SEED, SMALL_TIC_TAC_TOE, print_log};
use crate::process::{Output, Process};
use crate::trajectories::list;

/// The host of the test itself.
const HOME: Host = Host(0);
/// The admin port of each process, on the loopback of its own host.
const ADMIN: u16 = 9100;
/// Starting libtorch on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The time within which every process must work again after a repair.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(90);
/// The time limit of a drain.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);
/// The interval between polls.
const POLL: Duration = Duration::from_millis(20);
/// The link of [`Kind::Slow`], with delay and loss per direction.
const SLOW: Link = Link::Slow { delay: Duration::from_millis(100), loss: 0.02 };

const INSERTED: &str = "zerofleet_actor_inserted_total";
const STEPS: &str = "zerofleet_learner_steps_total";
const BY_SERVER: &str = "zerofleet_actor_remote_positions_total{by=\"server\"}";
const ARENA_VERSION: &str = "zerofleet_arena_weights_version";

/// The settings in addition to the small run file. No process waits for the rate limiter, so that a recovery time is
/// that of the affected process, and two cores can bear the load.
const SETTINGS: [&str; 8] = [
    "security.insecure_bind=true",
    "replay.actor_inserts_per_second_max=20",
    "replay.samples_per_insert=4",
    "replay.error_items=100000",
    "actor.unacknowledged_max=16",
    "arena.cpu_share=0.2",
    "arena.positions=50",
    "inference.threads=1",
];

/// A process, its host, and the thread that watches it.
#[derive(Debug)]
struct Member {
    service: Service,
    host: Host,
    process: Process,
    watch: Watch,
}

/// All processes of a run on a network of their own, in a run directory that is deleted at the end. Their logs are
/// printed if the test panics.
#[derive(Debug)]
pub struct Fleet {
    // Fields are dropped in this order: the processes end before the network and the directory are removed.
    members: Vec<Member>,
    network: Network,
    directory: TempDir,
}

impl Fleet {
    /// Returns the number of hosts: one for each process, and one for the test itself.
    #[must_use]
    pub fn hosts() -> u8 {
        let services = u8::try_from(Service::all().len()).expect("services are a handful");
        services + 1
    }

    /// Writes the run file and creates the processes without starting them.
    ///
    /// # Errors
    /// A binary is missing, or the run directory cannot be made.
    pub fn new(network: Network) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make the run directory")?;
        let run = format!(
            "[run]\ngame = \"tic_tac_toe\"\nseed = {SEED}\ndirectory = \"{}\"\n{SMALL_TIC_TAC_TOE}",
            directory.path().display()
        );
        std::fs::write(directory.path().join("config.toml"), run).context("write config.toml")?;
        let members = Service::all().into_iter().map(|service| member(service, &network, directory.path()));
        Ok(Self { members: members.collect::<anyhow::Result<_>>()?, network, directory })
    }

    /// Moves the calling thread, and the threads and processes that it starts afterwards, into a network namespace that
    /// reaches the fleet.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter(&self) -> anyhow::Result<()> {
        self.network.namespace(HOME).enter()
    }

    /// Starts every process, and waits until each makes progress.
    ///
    /// # Errors
    /// A process does not start.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        for member in &mut self.members {
            member.watch.begin_run(0.0);
            member.process.start()?;
            if matches!(member.service, Service::Replay | Service::Learner | Service::Inference) {
                member.process.ready(START_DEADLINE)?;
            }
        }
        let mut growths: Vec<Growth> =
            self.members.iter().filter_map(|member| self.own_work(member.service)).map(|at| at.since(start)).collect();
        let _: Vec<Duration> = all_grow(&mut growths)?;
        Ok(())
    }

    /// Returns the endpoint of the replay server.
    #[must_use]
    pub fn replay_endpoint(&self) -> String {
        endpoint(Service::Replay)
    }

    /// The run directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Injects a round of faults and repairs all of them; returns the time of the last repair.
    ///
    /// # Errors
    /// A process cannot be restarted, or one has ended by itself.
    pub fn suffer(&mut self, Round(faults): &Round) -> anyhow::Result<Instant> {
        let start = Instant::now();
        let mut events: Vec<(Duration, bool, Fault)> = faults
            .iter()
            .flat_map(|fault| [(fault.after, false, *fault), (fault.after + fault.length, true, *fault)])
            .collect();
        events.sort_by_key(|(at, ..)| *at);
        for (at, heals, fault) in events {
            // Faults are timed by the wall clock, so this test has to sleep.
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            if heals { self.heal(fault)? } else { self.strike(fault)? }
        }
        Ok(Instant::now())
    }

    fn strike(&mut self, Fault { service, kind, .. }: Fault) -> anyhow::Result<()> {
        let floor = if service == Service::Learner { self.checkpointed() } else { 0.0 };
        let member = &mut self.members[usize::from(service.index())];
        ensure!(member.process.is_running(), "{service} has ended by itself");
        match kind {
            Kind::Pause => member.process.pause(),
            Kind::Cut => self.network.set(member.host, Link::Cut),
            Kind::Slow => self.network.set(member.host, SLOW),
            Kind::Kill | Kind::Vanish => {
                if kind == Kind::Vanish {
                    self.network.set(member.host, Link::Cut);
                }
                member.watch.begin_run(floor);
                member.process.kill()?;
            }
        }
        Ok(())
    }

    fn heal(&mut self, Fault { service, kind, .. }: Fault) -> anyhow::Result<()> {
        let member = &mut self.members[usize::from(service.index())];
        match kind {
            Kind::Pause => member.process.resume(),
            Kind::Cut | Kind::Slow | Kind::Kill | Kind::Vanish => self.network.set(member.host, Link::Good),
        }
        if kind.ends_process() { member.process.start() } else { Ok(()) }
    }

    /// Waits until all processes work again after a round whose last repair was at `healed`.
    ///
    /// # Errors
    /// A process does not work again by the deadline.
    pub fn recover(&self, Round(faults): &Round, healed: Instant, witness: &Witness) -> anyhow::Result<Recovery> {
        let before = witness.acknowledged();
        // Growth is measured from zero only after a single fault: with two, the restarted process may have counted
        // before the other was repaired.
        let begins = |service| matches!(faults[..], [fault] if fault.service == service && fault.kind.ends_process());
        let work = |service: Service| {
            let at = self.own_work(service)?;
            // Only the count of inserts starts at zero with the process; the other metrics continue over restarts.
            Some(if begins(service) && at.metric == INSERTED { at.anew(healed) } else { at.since(healed) })
        };
        let own: Vec<Growth> = faults.iter().filter_map(|fault| work(fault.service)).collect();
        let actors: Vec<Growth> = Service::all()
            .into_iter()
            .filter(|service| matches!(service, Service::Actor(_)))
            .filter_map(&work)
            .collect();
        let training: Vec<Growth> = work(Service::Learner).into_iter().collect();
        let asks_witness = faults.iter().any(|fault| fault.service == Service::Replay);
        let (owns, acting) = (own.len(), actors.len());
        let mut growths: Vec<Growth> = own.into_iter().chain(actors).chain(training).collect();

        let mut witnessed = None;
        let times = grow_while(&mut growths, || {
            if witnessed.is_none() && witness.acknowledged() > before {
                witnessed = Some(healed.elapsed());
            }
            witnessed.is_some()
        })?;
        let greatest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        let seen = if asks_witness { witnessed.unwrap_or_default() } else { Duration::ZERO };
        Ok(Recovery {
            service: greatest(&times[..owns]).max(seen),
            actors: greatest(&times[owns..][..acting]),
            training: greatest(&times[owns + acting..]),
        })
    }

    /// Returns the counter of a service's own work; `None` for the replay server, whose work the witness measures.
    fn own_work(&self, service: Service) -> Option<At<'_>> {
        let last_actor = Service::all().into_iter().rfind(|service| matches!(service, Service::Actor(_)));
        let (of, metric) = match service {
            Service::Replay => return None,
            Service::Learner => (service, STEPS),
            Service::Inference => (last_actor?, BY_SERVER),
            Service::Actor(_) => (service, INSERTED),
            Service::Arena => (service, ARENA_VERSION),
        };
        Some(At { watch: &self.members[usize::from(of.index())].watch, metric })
    }

    /// Returns the training step of the newest finished checkpoint.
    fn checkpointed(&self) -> f64 {
        let entries = std::fs::read_dir(self.directory().join("checkpoints")).into_iter().flatten().flatten();
        let steps = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse::<u32>().ok());
        steps.max().map_or(0.0, f64::from)
    }

    /// Checks that every acknowledged trajectory is stored exactly once; returns the violations since the last check.
    ///
    /// # Errors
    /// The replay server does not answer.
    pub async fn check(&self, witness: &Witness) -> anyhow::Result<Vec<String>> {
        // The acknowledgements are read before the list, so that the list contains all of them.
        let acknowledged: Vec<_> = self.members.iter().map(|member| member.watch.acknowledged()).collect();
        let rest = witness.rest(RECOVERY_DEADLINE).await?;
        let ledger = Ledger::new(list(&self.replay_endpoint()).await.context("list what is stored")?);
        let mut faults = ledger.faults();
        faults.extend(ledger.lost_to_witness(rest.acknowledged));
        for (member, acknowledged) in self.members.iter().zip(acknowledged) {
            if let Service::Actor(actor) = member.service {
                faults.extend(ledger.lost(u64::from(actor), &acknowledged));
            }
            faults.extend(member.watch.broken());
        }
        Ok(faults)
    }

    /// Drains every process, actors first; returns the trajectories that are then stored, or spooled by an actor for
    /// its next start.
    ///
    /// # Errors
    /// A process does not drain.
    pub async fn finish(&mut self) -> anyhow::Result<Ledger> {
        self.end(|service| matches!(service, Service::Actor(_)))?;
        let endpoint = self.replay_endpoint();
        let held = list(&endpoint).await.context("list what is stored")?;
        let table = proto::replay::stats(&endpoint).await?;
        ensure!(table.trajectories_inserted_total == held.len() as u64, "{table:?}, but {} are held", held.len());
        let spooled = (0..super::fault::ACTORS).flat_map(|actor| self.spooled(u64::from(actor)));
        // A trajectory that was stored but not acknowledged is sent again, and counts once.
        let spooled: Vec<TrajectoryId> = spooled.filter(|id| !held.contains(id)).collect();
        self.end(|service| service == Service::Arena)?;
        self.end(|service| service == Service::Inference)?;
        self.end(|service| service == Service::Learner)?;
        self.end(|service| service == Service::Replay)?;
        Ok(Ledger::new(held.into_iter().chain(spooled)))
    }

    fn end(&mut self, who: impl Fn(Service) -> bool) -> anyhow::Result<()> {
        let mut those: Vec<&mut Member> = self.members.iter_mut().filter(|member| who(member.service)).collect();
        those.iter().for_each(|member| member.process.terminate());
        for member in &mut those {
            let Output { status, text } = member.process.ended(DRAIN_DEADLINE)?;
            ensure!(status.success(), "{} ended with {status}", member.service);
            ensure!(!text.contains("panicked at"), "{} has panicked", member.service);
        }
        Ok(())
    }

    /// Returns the trajectories that an actor has spooled for its next start.
    fn spooled(&self, actor: u64) -> Vec<TrajectoryId> {
        crate::trajectories::spooled(&self.home(actor).join("unacknowledged.spool"))
    }

    fn home(&self, actor: u64) -> std::path::PathBuf {
        self.directory().join("actors").join(actor.to_string())
    }

    /// Returns the lines of all logs at level ERROR, which means that a person must act.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let of = |member: &Member| {
            let text = member.process.log_text();
            text.lines()
                .filter(|line| line.contains("ERROR"))
                .map(|line| format!("{}: {line}", member.service))
                .collect()
        };
        self.members.iter().flat_map(|member| -> Vec<String> { of(member) }).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.members.iter().for_each(|member| print_log(&member.process));
        }
    }
}

fn endpoint(service: Service) -> String {
    format!("http://{}", listen(service))
}

fn host(service: Service) -> Host {
    Host(service.index() + 1)
}

fn listen(service: Service) -> String {
    let port = match service {
        Service::Replay => 7001,
        Service::Learner => 7002,
        _ => 7003,
    };
    format!("{}:{port}", host(service).address())
}

fn member(service: Service, network: &Network, directory: &Path) -> anyhow::Result<Member> {
    let (replay, learner) = (vec![endpoint(Service::Replay)], endpoint(Service::Learner));
    let mut wiring = Wiring { replay, learner, inference: None };
    let mut sets: Vec<String> = SETTINGS.iter().map(|&set| set.to_owned()).collect();
    if let Service::Actor(actor) = service {
        sets.push(format!("actor.id={actor}"));
        wiring.inference = (actor + 1 == super::fault::ACTORS).then(|| endpoint(Service::Inference));
    }
    let role = service.role();
    let listen = matches!(role, Role::Replay | Role::Learner | Role::Inference).then(|| listen(service));
    let sets = sets.into_iter().chain(wiring.sets(role));
    let mut arguments = wiring::arguments(&directory.join("config.toml"), listen.as_deref(), sets);
    // An interrupted run leaves no process behind in its namespaces.
    arguments.push("--exit-with-parent".into());
    let name = service.to_string().replace(' ', "-");
    let namespace = network.namespace(host(service));
    let mut process = Process::new(&name, role.program(), arguments, ADMIN, directory)?;
    process.run_in(namespace.clone());
    let watch = Watch::start(name, namespace, ADMIN, promises(service, directory))?;
    Ok(Member { service, host: host(service), process, watch })
}

fn promises(service: Service, directory: &Path) -> Promises {
    let never_falls = match service {
        Service::Replay => None,
        Service::Learner => Some("zerofleet_learner_weights_version"),
        Service::Inference => Some("zerofleet_inference_weights_version"),
        Service::Actor(_) => Some("zerofleet_actor_weights_version"),
        Service::Arena => Some(ARENA_VERSION),
    };
    let epoch = |actor: u8| directory.join("actors").join(actor.to_string()).join("epoch");
    let acknowledged = match service {
        Service::Actor(actor) => Some((INSERTED, epoch(actor))),
        _ => None,
    };
    let falls_to_floor = (service == Service::Learner).then_some(STEPS);
    Promises { never_falls, falls_to_floor, acknowledged }
}

/// A metric of a process.
#[derive(Debug, Clone, Copy)]
struct At<'a> {
    watch: &'a Watch,
    metric: &'static str,
}

impl<'a> At<'a> {
    /// Returns the condition that the metric grows beyond its first value read after `since`.
    fn since(self, since: Instant) -> Growth<'a> {
        Growth { at: self, since, start_count: self.watch.start_count(), from: None }
    }

    /// Returns the same condition after a restart, when any value above zero is growth.
    fn anew(self, since: Instant) -> Growth<'a> {
        Growth { from: Some(0.0), ..self.since(since) }
    }
}

#[derive(Debug)]
struct Growth<'a> {
    at: At<'a>,
    since: Instant,
    start_count: u32,
    from: Option<f64>,
}

impl Growth<'_> {
    /// Returns the time from `since` until the metric grew; `None` if it has not grown yet.
    fn time(&mut self) -> Option<Duration> {
        let Seen { began, ended, start_count, value } = self.at.watch.seen(self.at.metric)?;
        if began < self.since || start_count != self.start_count {
            return None;
        }
        // A missing metric is read as 0, which is not a baseline: after a restart, the metric first returns to its
        // value from before the process ended.
        if self.from.is_none() && value > 0.0 {
            self.from = Some(value);
        }
        (value > self.from?).then(|| ended.duration_since(self.since))
    }
}

fn all_grow(growths: &mut [Growth]) -> anyhow::Result<Vec<Duration>> {
    grow_while(growths, || true)
}

/// Waits until all metrics have grown and `also` holds; returns the time of each.
fn grow_while(growths: &mut [Growth], mut also: impl FnMut() -> bool) -> anyhow::Result<Vec<Duration>> {
    let start = Instant::now();
    let mut times: Vec<Option<Duration>> = vec![None; growths.len()];
    loop {
        for (growth, time) in growths.iter_mut().zip(&mut times) {
            *time = time.or_else(|| growth.time());
        }
        let others = also();
        if let (true, Some(times)) = (others, times.iter().copied().collect::<Option<Vec<_>>>()) {
            return Ok(times);
        }
        let missing: Vec<_> = growths.iter().zip(&times).filter(|(_, time)| time.is_none()).collect();
        let metrics: Vec<_> = missing.iter().map(|(growth, _)| growth.at.metric).collect();
        ensure!(start.elapsed() < RECOVERY_DEADLINE, "not within {RECOVERY_DEADLINE:?}: that these grow: {metrics:?}");
        std::thread::sleep(POLL);
    }
}
