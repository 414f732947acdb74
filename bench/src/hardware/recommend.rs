//! Recommendations from the measured speeds.

use super::setting::Setting;
use super::workload::{Kind, VECTOR_OPERATION};
use crate::report::{in_unit, time};
use crate::series::{Speed, Speeds};

/// Share of the greatest speed that counts as equally good: a larger size has a higher latency, and must gain more than
/// the variation between turns.
const AS_GOOD: f64 = 0.95;

/// Divides the speed by that of the fastest CPU setting at the same size, if there is one.
pub(super) fn speed_up(settings: &[Speeds<Setting>], speed: &Speed) -> Option<f64> {
    Some(speed.per_second / on_cpu(settings).filter_map(|cpu| cpu.at(speed.size)).max_by(f64::total_cmp)?)
}

/// Describes the recommended setting, and from which size on each accelerator is faster than the CPU.
fn in_words(kind: Kind, settings: &[Speeds<Setting>]) -> String {
    let Some((setting, speed)) = recommended(settings) else { return "Nothing was measured.".to_owned() };
    let (at_size, latency, metric) = (at(kind, speed.size), time(speed.latency_us), kind.metric);
    let per_second = in_unit(speed.per_second, kind.unit);
    let mut text = format!("Use {setting} at {at_size}: {per_second} {metric}, {latency} from call to answer.");
    let wins = wins(settings);
    for (device, from) in &wins {
        text += &match from {
            Some(size) => format!(" From {} on, {device} is faster than the CPU.", at(kind, *size)),
            None => format!(" At the largest {} measured, {device} is not faster than the CPU.", kind.sizes),
        };
    }
    if wins.is_empty() { text + " There is no accelerator to compare with the CPU." } else { text }
}

/// Returns the conclusions from the speeds of a workload, with the reasons why settings were not measured.
pub(super) fn finding(workload: &str, kind: Kind, settings: &[Speeds<Setting>]) -> String {
    let mut finding = format!("{workload}: {}", in_words(kind, settings));
    for Speeds { label: setting, not_measured, .. } in settings {
        finding += &not_measured.as_ref().map_or(String::new(), |why| format!("\n- {setting}: not measured: {why}"));
    }
    finding
}

fn at(kind: Kind, size: usize) -> String {
    if kind.sizes == VECTOR_OPERATION.sizes {
        format!("{size} {}", kind.sizes)
    } else {
        format!("{} {size}", kind.sizes)
    }
}

fn on_cpu(settings: &[Speeds<Setting>]) -> impl Iterator<Item = &Speeds<Setting>> {
    settings.iter().filter(|of| of.label.accelerator.is_none())
}

/// Returns the smallest size at which a setting is about as fast as the fastest at any size, and the fastest setting at
/// this size.
fn recommended(settings: &[Speeds<Setting>]) -> Option<(&Setting, &Speed)> {
    let most = settings.iter().filter_map(Speeds::best).max_by(f64::total_cmp)?;
    let all = settings.iter().flat_map(|of| of.speeds.iter().map(move |speed| (&of.label, speed)));
    let as_good = all.filter(|(_, speed)| speed.per_second >= AS_GOOD * most);
    as_good.min_by(|(_, a), (_, b)| a.size.cmp(&b.size).then(b.per_second.total_cmp(&a.per_second)))
}

/// Returns the time between two results at a size, in microseconds, of the fastest setting on an accelerator, or for
/// `None` on the CPU.
pub(super) fn fastest_us(settings: &[Speeds<Setting>], accelerator: Option<&str>, size: usize) -> Option<f64> {
    let on_device = settings.iter().filter(|of| of.label.accelerator.as_deref() == accelerator);
    let at_size = on_device.flat_map(|of| &of.speeds).filter(|speed| speed.size == size);
    at_size.map(|speed| speed.interval_us).min_by(f64::total_cmp)
}

/// Returns each accelerator, in the faster precision, with the smallest size from which on it is faster than every CPU
/// setting; `None` if it is not faster at the largest size.
pub(super) fn wins(settings: &[Speeds<Setting>]) -> Vec<(&str, Option<usize>)> {
    let measured = settings.iter().filter(|of| !of.speeds.is_empty());
    let mut devices: Vec<&str> = measured.filter_map(|of| of.label.accelerator.as_deref()).collect();
    devices.dedup();
    devices.into_iter().map(|device| (device, wins_from(settings, device))).collect()
}

fn wins_from(settings: &[Speeds<Setting>], device: &str) -> Option<usize> {
    let accelerated = || settings.iter().filter(|of| of.label.accelerator.as_deref() == Some(device));
    let mut sizes: Vec<usize> = accelerated().flat_map(|of| &of.speeds).map(|speed| speed.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let wins = |size: &usize| match fastest_us(settings, None, *size) {
        Some(of_cpu) => fastest_us(settings, Some(device), *size).is_some_and(|us| us < of_cpu),
        None => accelerated().filter_map(|of| of.at(*size)).max_by(f64::total_cmp) > cpu_at_most(settings, *size),
    };
    sizes.into_iter().rev().take_while(wins).last()
}

/// Returns the speed of the CPU at a size. If that size was left out for taking too long, uses the nearest smaller
/// size: a CPU can evaluate a large batch as several smaller batches.
fn cpu_at_most(settings: &[Speeds<Setting>], size: usize) -> Option<f64> {
    let measured = on_cpu(settings).flat_map(|of| &of.speeds).map(|speed| speed.size);
    let nearest = measured.filter(|&measured| measured <= size).max()?;
    on_cpu(settings).filter_map(|of| of.at(nearest)).max_by(f64::total_cmp)
}

#[cfg(test)]
pub(super) mod tests {
    use network_torch::{Device, Precision};

    use super::super::setting::Split;
    use super::super::workload::{MATRIX_PRODUCT, NETWORK};
    use super::*;
    use crate::series::tests::made_up as setting;

    /// Returns the setting of libtorch with one thread.
    fn libtorch(device: Device, precision: Precision) -> Setting {
        Setting::new(device, "libtorch", precision, Split::SINGLE)
    }

    /// Returns the CPU kernel, libtorch on the CPU without the largest batch, and a GPU that needs large batches.
    pub(in super::super) fn settings() -> Vec<Speeds<Setting>> {
        let mut refused = setting(libtorch(Device::Cuda(0), Precision::F32), &[(1, 500.0), (64, 10_000.0)]);
        refused.not_measured = Some("size 1024: out of memory".to_owned());
        vec![
            setting(libtorch(Device::Cpu, Precision::F32), &[(1, 1000.0), (64, 8000.0)]),
            setting(
                Setting::new(Device::Cpu, "avx512-bf16", Precision::Bf16, Split { evaluators: 2, threads: 1 }),
                &[(1, 20_000.0), (64, 25_000.0)],
            ),
            refused,
            setting(libtorch(Device::Cuda(0), Precision::Bf16), &[(1, 1000.0), (64, 50_000.0), (1024, 200_000.0)]),
        ]
    }

    fn cpu() -> Vec<Speeds<Setting>> {
        on_cpu(&settings()).cloned().collect()
    }

    fn named((setting, speed): (&Setting, &Speed)) -> (String, usize, f64) {
        (setting.to_string(), speed.size, speed.per_second)
    }

    #[test]
    fn the_fastest_setting_is_recommended_at_its_size() {
        let expected = ("cuda libtorch bf16".to_owned(), 1024, 200_000.0);
        assert_eq!(named(recommended(&settings()).unwrap()), expected);
        let expected = ("cpu avx512-bf16, 2 evaluators".to_owned(), 64, 25_000.0);
        assert_eq!(named(recommended(&cpu()).unwrap()), expected);
    }

    #[test]
    fn a_larger_size_must_gain_more_than_turns_differ_by() {
        let at = |speeds: &[(usize, f64)]| {
            recommended(&[setting(libtorch(Device::Cpu, Precision::F32), speeds)]).map(|(_, speed)| speed.size)
        };
        assert_eq!(at(&[(1, 500.0), (16, 960.0), (64, 1000.0)]), Some(16));
        assert_eq!(at(&[(1, 500.0), (16, 940.0), (64, 1000.0)]), Some(64));
    }

    #[test]
    fn at_the_recommended_size_the_fastest_setting_is_taken() {
        let cpu = |precision, speed| setting(libtorch(Device::Cpu, precision), &[(16, speed)]);
        let both = [cpu(Precision::F32, 970.0), cpu(Precision::Bf16, 1000.0)];
        assert_eq!(recommended(&both).unwrap().1.per_second, 1000.0);
    }

    #[test]
    fn without_speeds_nothing_is_recommended() {
        assert_eq!(recommended(&[]), None);
        assert_eq!(recommended(&[setting(libtorch(Device::Cpu, Precision::F32), &[])]), None);
    }

    #[test]
    fn speed_ups_are_over_the_fastest_setting_of_the_cpu_at_the_same_size() {
        let settings = settings();
        let speed_ups =
            |index: usize| settings[index].speeds.iter().map(|speed| speed_up(&settings, speed)).collect::<Vec<_>>();
        assert_eq!(speed_ups(0), [Some(0.05), Some(0.32)]);
        assert_eq!(speed_ups(1), [Some(1.0), Some(1.0)]);
        assert_eq!(speed_ups(3), [Some(0.05), Some(2.0), None]);
    }

    #[test]
    fn an_accelerator_wins_from_where_it_stays_ahead_of_the_cpu() {
        let from = |settings: &[Speeds<Setting>]| {
            wins(settings).into_iter().map(|(device, from)| (device.to_owned(), from)).collect::<Vec<_>>()
        };
        // The CPU was not measured at 1024, and would be no faster than at 64.
        assert_eq!(from(&settings()), [("cuda".to_owned(), Some(64))]);
        assert!(from(&cpu()).is_empty());

        let gpu = |speeds: &[(usize, f64)]| {
            let gpu = setting(libtorch(Device::Cuda(1), Precision::F32), speeds);
            from(&[cpu(), vec![gpu]].concat())
        };
        assert_eq!(gpu(&[(1, 30_000.0), (64, 20_000.0), (1024, 60_000.0)]), [("cuda:1".to_owned(), Some(1024))]);
        assert_eq!(gpu(&[(1, 30_000.0), (64, 30_000.0)]), [("cuda:1".to_owned(), Some(1))]);
        assert_eq!(gpu(&[(1, 30_000.0), (64, 20_000.0)]), [("cuda:1".to_owned(), None)]);
        assert!(gpu(&[]).is_empty());
    }

    #[test]
    fn the_faster_precision_of_an_accelerator_counts() {
        let gpu = |precision, speeds: &[(usize, f64)]| setting(libtorch(Device::Mps, precision), speeds);
        let both =
            [gpu(Precision::F32, &[(1, 30_000.0), (64, 1.0)]), gpu(Precision::Bf16, &[(1, 1.0), (64, 30_000.0)])];
        assert_eq!(wins(&[cpu(), both.to_vec()].concat()), [("mps", Some(1))]);
    }

    #[test]
    fn a_recommendation_names_a_setting_and_the_size_from_which_an_accelerator_is_faster() {
        assert_eq!(
            in_words(NETWORK, &settings()),
            "Use cuda libtorch bf16 at batch 1024: 200000 evaluations/s, 5.12 ms from call to answer. \
         From batch 64 on, cuda is faster than the CPU."
        );
    }

    #[test]
    fn sizes_and_speeds_are_printed_in_the_units_of_their_workload() {
        let cpu = libtorch(Device::Cpu, Precision::F32);
        let mut speeds = setting(cpu, &[(4096, 2.5e11)]);
        speeds.speeds[0].latency_us = 275_000.0;
        let words = |kind| in_words(kind, std::slice::from_ref(&speeds));
        let product = words(MATRIX_PRODUCT);
        assert!(
            product.starts_with("Use cpu libtorch f32, 1 thread at side 4096: 250.00 G multiply-adds/s, 275 ms"),
            "{product}"
        );
        assert!(words(VECTOR_OPERATION).contains("at 4096 elements: 250 GB/s bytes/s"));
        assert!(words(NETWORK).ends_with(" There is no accelerator to compare with the CPU."));
    }

    #[test]
    fn an_accelerator_that_is_never_faster_is_reported_as_such() {
        let both = [Device::Cpu, Device::Mps].map(|device| setting(libtorch(device, Precision::F32), &[(1, 1000.0)]));
        let words = in_words(NETWORK, &both);
        assert!(words.ends_with(" At the largest batch measured, mps is not faster than the CPU."), "{words}");
    }

    #[test]
    fn a_recommendation_without_measurements_states_that_nothing_was_measured() {
        assert_eq!(in_words(NETWORK, &[]), "Nothing was measured.");
    }
}
