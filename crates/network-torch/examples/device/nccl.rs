//! Groups of one learner over NCCL, and groups that are never complete.

use std::sync::Arc;
use std::time::{Duration, Instant};

use collective::nccl::{Clock, Nccl};
use collective::{Collective, Memory};
use network_torch::{Device, DeviceContribution, Network, Trainer};
use training::{Contributed, Laps, Precision, Trainer as _, TrainerSettings, TrainingKernel};

use crate::output::Kind;
use crate::towers::{CONNECT_FOUR, name, plain, training_batch};
use crate::{Result, Settings};

/// Time limit for joining a group of one, longer than NCCL takes.
const LONG: Duration = Duration::from_secs(20);
/// Limit of a join that cannot succeed, and the bar for the whole join including the abort.
const LIMIT: Duration = Duration::from_secs(2);
const ABORT_BAR_SECONDS: f64 = 4.0;
/// Timed sums.
const SUMS: u32 = 20;
/// Bytes that pass through the memory of the GPU in several parts.
const BYTES: usize = 40_000_003;
/// Extra numbers in a sum, next to a contribution.
const BESIDE: [f32; 3] = [1.0, 0.1, 16_777_216.0];

/// Checks sums and copies in a group of one, which must change no bit, and joins that must end at the limit.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.training_device()?.device;
    let Device::Cuda(index) = device else {
        contributions(settings, device, None)?;
        settings.skipped("NCCL", "the device is no CUDA device");
        return Ok(());
    };
    let nccl =
        Nccl::load(index, Clock { now: Instant::now, pause: std::thread::sleep, give_up: || panic!("NCCL hangs") });
    let found = nccl.as_ref().map_or_else(ToString::to_string, |nccl| format!("GPU {}", hexadecimal(&nccl.gpu())));
    settings.claim("NCCL is loaded and the GPU has an identity", &found, nccl.is_ok());
    let nccl = nccl?;
    let start = Instant::now();
    let mut group = nccl.join(&nccl.unique_id()?, [0, 1], LONG, &Arc::default())?;
    settings.value("time to join a group of one", start.elapsed().as_secs_f64(), "s");
    settings.claim("memory of the group", &format!("{:?}", group.memory()), group.memory() == Memory::Cuda(index));
    contributions(settings, device, Some(&mut group))?;

    let bytes: Vec<u8> = (0..BYTES).map(|index| (index * 7) as u8).collect();
    let mut copied = bytes.clone();
    let start = Instant::now();
    group.broadcast(0, &mut copied, LONG)?;
    let rate = 1e-9 * BYTES as f64 / start.elapsed().as_secs_f64();
    settings.value(&format!("broadcast of {BYTES} bytes of the host"), rate, "GB/s");
    settings.claim("bytes that a broadcast changes", changed(copied == bytes), copied == bytes);
    drop(group);
    incomplete(settings, &nccl)?;
    let mut again = nccl.join(&nccl.unique_id()?, [0, 1], LONG, &Arc::default())?;
    let mut numbers = [0.5];
    again.all_reduce(collective::Numbers::Host(&mut numbers), LONG)?;
    settings.claim("a group after the aborted ones sums", &format!("{numbers:?}"), numbers == [0.5]);
    Ok(())
}

/// Checks a contribution in device memory: a sum over one learner changes no bit, and the step equals the step with
/// the same numbers from the host.
fn contributions(settings: &Settings, device: Device, mut group: Option<&mut dyn Collective>) -> Result<()> {
    let architecture = settings.sized(plain(20, 256, CONNECT_FOUR), plain(2, 16, CONNECT_FOUR));
    let rows = settings.sized(256, 32);
    let of_training =
        TrainerSettings { precision: Precision::F32, tower: TrainingKernel::Libtorch, ..TrainerSettings::default() };
    let mut trainer = Trainer::new(Network::new(&architecture, device, 3)?, of_training.clone())?;
    trainer.step(&training_batch(&architecture, rows, 0).into())?;
    let mut other = Trainer::restore(&architecture, of_training, device, &trainer.files()?)?;
    let batch = training_batch(&architecture, rows, 1).into();
    let mut contributed = trainer.contribute_on_device(Some(&batch), &BESIDE, &mut Laps::none())?;
    let before = contributed.contribution.download()?;
    let network = name(&architecture);
    if let Some(group) = &mut group {
        group.all_reduce(contributed.contribution.numbers(), LONG)?;
        let start = Instant::now();
        for _ in 0..SUMS {
            group.all_reduce(contributed.contribution.numbers(), LONG)?;
        }
        let milliseconds = 1e3 * start.elapsed().as_secs_f64() / f64::from(SUMS);
        settings.value(&format!("{network}: sum of {} numbers on the GPU", before.numbers().len()), milliseconds, "ms");
    }
    let unchanged = is_equal(&contributed, before.numbers())?;
    settings.claim(&format!("{network}: bits that a sum of one changes"), changed(unchanged), unchanged);
    contributed.contribution.divide(1)?;
    let Contributed { value_errors, times, .. } = &contributed;
    let of_host = Contributed { contribution: before, value_errors: value_errors.clone(), times: *times };
    other.apply(of_host, &mut Laps::none())?;
    trainer.apply_on_device(contributed, &mut Laps::none())?;
    let equal = trainer.files()? == other.files()?;
    settings.claim(&format!("{network}: bits in which steps from device and host differ"), changed(equal), equal);
    Ok(())
}

fn is_equal(contributed: &Contributed<DeviceContribution>, numbers: &[f32]) -> Result<bool> {
    let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    let Contributed { contribution, .. } = contributed;
    let is_equal = bits(contribution.download()?.numbers()) == bits(numbers);
    Ok(is_equal && bits(&contribution.beside()?) == bits(&BESIDE))
}

/// Checks groups with a second member that never comes, or is on the same GPU.
fn incomplete(settings: &Settings, nccl: &Nccl) -> Result<()> {
    let start = Instant::now();
    let joined = nccl.join(&nccl.unique_id()?, [0, 2], LIMIT, &Arc::default());
    let seconds = start.elapsed().as_secs_f64();
    let found = joined.as_ref().map_or_else(ToString::to_string, |_| "it joined".to_owned());
    settings.claim("a join without the second member is aborted", &found, joined.is_err());
    settings.at_most(Kind::Correctness, "time of that join, limited to 2 s", (seconds, "s"), ABORT_BAR_SECONDS);
    let id = nccl.unique_id()?;
    let join = |rank| nccl.join(&id, [rank, 2], LIMIT, &Arc::default()).map(drop);
    let start = Instant::now();
    let outcomes = std::thread::scope(|scope| {
        let threads = [0, 1].map(|rank| scope.spawn(move || join(rank)));
        threads.map(|thread| thread.join().expect("a join does not panic"))
    });
    settings.value("time of a join of two ranks on one GPU", start.elapsed().as_secs_f64(), "s");
    for (rank, outcome) in outcomes.iter().enumerate() {
        let found = outcome.as_ref().map_or_else(ToString::to_string, |()| "it joined".to_owned());
        settings.text(&format!("two ranks on one GPU: rank {rank}"), &found);
    }
    Ok(())
}

fn changed(is_equal: bool) -> &'static str {
    if is_equal { "none" } else { "some" }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
