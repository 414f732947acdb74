use super::*;

#[test]
fn under_auto_a_cpu_whose_kernels_train_takes_their_precision_and_a_configured_one_stays() {
    let chosen = |precision| {
        let section = LearnerSection { precision, ..LearnerSection::default() };
        let Subject { precision, is_adaptive, .. } = Subject::new(Device::Cpu, &section).unwrap();
        (precision, is_adaptive)
    };
    assert_eq!(chosen(TrainingPrecision::Bf16), (Precision::Bf16, false));
    assert_eq!(chosen(TrainingPrecision::F32), (Precision::F32, false));
    if let Some(precision) = precision_of_kernels(&LearnerSection::default()) {
        let has_bf16 = Cpu::this().has_bf16;
        assert_eq!(precision, if has_bf16 { Precision::Bf16 } else { Precision::F32 });
        assert_eq!(chosen(TrainingPrecision::Auto), (precision, has_bf16));
    }
}

/// A fake device, with a constant time per step and a time per position. Steps with more positions than fit into memory
/// fail.
struct FakeDevice {
    constant: Duration,
    per_position: Duration,
    positions_max: usize,
}

impl FakeDevice {
    fn new(constant_us: u64, per_position_us: u64) -> Self {
        let [constant, per_position] = [constant_us, per_position_us].map(Duration::from_micros);
        Self { constant, per_position, positions_max: usize::MAX }
    }

    /// Returns the measured speed, the number of positions in each step, and the total time of all steps.
    fn measure(&self, batch: usize, rival_seconds: Option<f64>) -> (Result<Speed, &'static str>, Vec<usize>, Duration) {
        let rival = rival_seconds.map(|step_seconds| Speed { step_seconds, positions: batch });
        let (mut steps, mut spent) = (Vec::new(), Duration::ZERO);
        let mut step = |positions: usize| {
            if positions > self.positions_max {
                return Err("out of memory");
            }
            let took = self.constant + self.per_position * u32::try_from(positions).unwrap();
            steps.push(positions);
            spent += took;
            Ok(took)
        };
        let speed = measure(batch, rival.as_ref(), &mut step);
        (speed, steps, spent)
    }

    fn positions(&self, batch: usize, rival_seconds: Option<f64>) -> usize {
        self.measure(batch, rival_seconds).0.unwrap().positions
    }
}

#[test]
fn a_fast_device_is_measured_with_whole_batches() {
    let (speed, steps, _) = FakeDevice::new(1000, 10).measure(1024, None);
    let speed = speed.unwrap();
    assert_eq!(speed.positions, 1024);
    assert!((speed.step_seconds - 0.01124).abs() < 1e-9, "{speed:?}");
    assert_eq!(steps, [16, 16, 64, 64, 256, 256, 1024, 1024, 1024, 1024]);
}

#[test]
fn a_slow_device_is_judged_by_a_part_of_the_batch_within_the_time() {
    let (speed, steps, spent) = FakeDevice::new(0, 10_000).measure(4096, None);
    assert!((speed.unwrap().step_seconds - 40.96).abs() < 1e-6);
    assert_eq!(steps, [64, 64], "the next size would not fit the time");
    assert!(spent < TRIAL_TIME, "{spent:?}");
}

#[test]
fn a_device_far_slower_than_its_rival_is_not_measured_further() {
    let device = FakeDevice::new(0, 100);
    assert_eq!(device.positions(1024, Some(0.01)), 16);
    assert_eq!(device.positions(1024, Some(0.03)), 1024);
}

#[test]
fn a_device_without_memory_for_whole_batches_is_judged_by_those_it_takes() {
    let device = FakeDevice { positions_max: 300, ..FakeDevice::new(0, 10) };
    assert_eq!(device.positions(1024, None), 256);
    let device = FakeDevice { positions_max: 3, ..FakeDevice::new(0, 10) };
    assert_eq!(device.measure(1024, None).0, Err("out of memory"));
}

#[test]
fn the_smallest_batches_are_measured() {
    assert_eq!(FakeDevice::new(10, 10).positions(1, None), 1);
    assert_eq!(FakeDevice::new(10, 10).positions(3, None), 3);
}

fn speed(step_ms: f64, positions: usize) -> Result<Speed, String> {
    Ok(Speed { step_seconds: step_ms / 1e3, positions })
}

#[test]
fn the_faster_device_is_chosen_and_both_figures_are_stated() {
    let tiny = Comparison { accelerator: speed(3.0, 256), cpu: speed(1.25, 256) };
    assert!(!tiny.is_accelerator_faster());
    assert_eq!(
        tiny.describe(256, "cuda"),
        "measured: a training step of 256 positions takes 3.0 ms on cuda, 1.2 ms on cpu"
    );
    let large = Comparison { accelerator: speed(3.0, 256), cpu: speed(900.0, 4) };
    assert!(large.is_accelerator_faster());
    assert!(large.describe(256, "mps").ends_with("takes 3.0 ms on mps, about 900.0 ms on cpu (measured with 4)"));
    let failed = Comparison { accelerator: Err("no kernel".to_owned()), cpu: speed(1.0, 256) };
    assert!(!failed.is_accelerator_faster());
    assert!(failed.describe(256, "cuda").contains("fails on cuda (no kernel), 1.0 ms on cpu"));
}

fn architecture() -> Architecture {
    Architecture::plain("tic_tac_toe", [2, 3, 3], 9, [8, 1])
}

fn section() -> LearnerSection {
    LearnerSection { batch_size: 8, precision: TrainingPrecision::F32, ..LearnerSection::default() }
}

#[test]
fn the_network_of_the_run_is_compared_and_its_first_weights_do_not_depend_on_that() {
    for (model, consistency_loss_weight) in [
        (Model::Alphazero, 0.0),
        (Model::AlphazeroReturns { support: 5 }, 0.0),
        (Model::Muzero { support: 5 }, 0.0),
        (Model::Muzero { support: 5 }, 2.0),
        (Model::StochasticMuzero { support: 5, codes: 4 }, 2.0),
        (Model::StochasticMuzero { support: 5, codes: 4 }, 0.0),
    ] {
        let section = || LearnerSection { consistency_loss_weight, ..section() };
        let architecture = Architecture { model, ..architecture() };
        let network = || network_torch::Network::new(&architecture, Device::Cpu, 7).unwrap().to_safetensors().unwrap();
        let before = network();
        let subject = Subject::new(Device::Cpu, &section()).unwrap();
        let compared = Comparison::new(&subject, &subject, &section(), &architecture);
        for speed in [compared.accelerator, compared.cpu] {
            let speed = speed.unwrap();
            assert!(speed.step_seconds > 0.0 && speed.positions > 0, "{speed:?}");
        }
        assert_eq!(network(), before);
    }
}

#[test]
fn a_comparison_is_stored_for_its_machine_network_and_batch_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = RememberedFile::new(folder.path().join("learner-devices.json"));
    let key = |batch_size| key(&LearnerSection { batch_size, ..section() }, &architecture(), Device::Mps);
    let compared = Comparison { accelerator: speed(3.0, 256), cpu: speed(1.0, 256) };
    remember(&file, key(256), &compared);
    assert_eq!(remembered(&file, &key(256)), Some(compared));
    assert_eq!(remembered(&file, &key(512)), None);
    let unrolled = Architecture { model: Model::Muzero { support: 5 }, ..architecture() };
    let of_steps = |unroll_steps| super::key(&LearnerSection { unroll_steps, ..section() }, &unrolled, Device::Mps);
    assert_ne!(of_steps(5), of_steps(1));
    remember(&file, key(512), &Comparison { accelerator: Err("busy".to_owned()), cpu: speed(1.0, 512) });
    assert_eq!(remembered(&file, &key(512)), None, "a failure is not kept");
    file.write(b"not JSON");
    assert_eq!(remembered(&file, &key(256)), None);
}

#[test]
fn a_named_device_that_cannot_be_used_is_an_error_that_names_the_key() {
    let mut config = run_file::learner::Config::default();
    // No machine has a thousand devices.
    config.learner.device = DevicePreference::Cuda(1000);
    let error = choose(&config.settings().unwrap(), &architecture()).unwrap_err().to_string();
    assert!(error.starts_with("learner.device: cannot use device cuda:1000: "), "{error}");
}
