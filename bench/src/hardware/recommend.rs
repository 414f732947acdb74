//! Recommendations from what was measured.

use super::speeds::{Recommended, SettingSpeeds, Speed, Win};

/// Share of the greatest speed that is as good: a larger size must gain more than turns differ by, because its answers
/// come later.
const AS_GOOD: f64 = 0.95;

/// Adds to every speed how many times it is that of the fastest setting of the CPU at the same size.
pub(super) fn add_speed_ups(settings: &mut [SettingSpeeds]) {
    let cpu: Vec<SettingSpeeds> = settings.iter().filter(|report| report.setting.is_cpu()).cloned().collect();
    for speed in settings.iter_mut().flat_map(|report| &mut report.speeds) {
        speed.speed_up = fastest(cpu.iter().filter_map(|report| report.at(speed.size))).map(|of| speed.per_second / of);
    }
}

/// The smallest size at which something is about as fast as anything is at any size; at this size, the fastest.
pub(super) fn recommended(settings: &[SettingSpeeds]) -> Option<Recommended> {
    let most = fastest(settings.iter().flat_map(|report| &report.speeds))?;
    let all = settings.iter().flat_map(|report| report.speeds.iter().map(move |speed| (report, speed)));
    let as_good = all.filter(|(_, speed)| speed.per_second >= AS_GOOD * most);
    let (report, speed) =
        as_good.min_by(|(_, a), (_, b)| a.size.cmp(&b.size).then(b.per_second.total_cmp(&a.per_second)))?;
    let Speed { size, per_second, latency_us, .. } = *speed;
    Some(Recommended { setting: report.setting.clone(), size, per_second, latency_us })
}

/// From where on each accelerator is faster than the CPU, in the order in which they come.
pub(super) fn wins(settings: &[SettingSpeeds]) -> Vec<Win> {
    let measured = settings.iter().filter(|report| !report.setting.is_cpu() && !report.speeds.is_empty());
    let mut devices: Vec<&str> = measured.map(|report| report.setting.device.as_str()).collect();
    devices.dedup();
    devices.into_iter().map(|device| Win { device: device.to_owned(), from: wins_from(settings, device) }).collect()
}

fn wins_from(settings: &[SettingSpeeds], device: &str) -> Option<usize> {
    let accelerated = || settings.iter().filter(|report| report.setting.device == device);
    let mut sizes: Vec<usize> = accelerated().flat_map(|report| &report.speeds).map(|speed| speed.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let wins = |size: &usize| {
        let fastest = fastest(accelerated().filter_map(|report| report.at(*size)));
        fastest > cpu_at_most(settings, *size)
    };
    sizes.into_iter().rev().take_while(wins).last()
}

/// The speed of the CPU at a size. Where it was left out for taking too long, the nearest smaller size stands for it: a
/// CPU can answer a large batch as several of those.
fn cpu_at_most(settings: &[SettingSpeeds], size: usize) -> Option<f64> {
    let cpu = || settings.iter().filter(|report| report.setting.is_cpu()).flat_map(|report| &report.speeds);
    let nearest = cpu().map(|speed| speed.size).filter(|&measured| measured <= size).max()?;
    fastest(cpu().filter(|speed| speed.size == nearest))
}

fn fastest<'a>(speeds: impl Iterator<Item = &'a Speed>) -> Option<f64> {
    speeds.map(|speed| speed.per_second).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use network_torch::{Device, Precision};

    use super::super::testing::{libtorch, setting, settings};
    use super::*;

    fn cpu() -> Vec<SettingSpeeds> {
        settings().into_iter().filter(|report| report.setting.is_cpu()).collect()
    }

    fn named(report: &Recommended) -> (String, usize, f64) {
        (report.setting.to_string(), report.size, report.per_second)
    }

    #[test]
    fn the_fastest_setting_is_recommended_at_its_size() {
        let expected = ("cuda libtorch bf16".to_owned(), 1024, 200_000.0);
        assert_eq!(named(&recommended(&settings()).unwrap()), expected);
        let expected = ("cpu avx512-bf16, 2 evaluators".to_owned(), 64, 25_000.0);
        assert_eq!(named(&recommended(&cpu()).unwrap()), expected);
    }

    #[test]
    fn a_larger_size_must_gain_more_than_turns_differ_by() {
        let at = |speeds: &[(usize, f64)]| {
            recommended(&[setting(libtorch(Device::Cpu, Precision::F32), speeds)]).map(|recommended| recommended.size)
        };
        assert_eq!(at(&[(1, 500.0), (16, 960.0), (64, 1000.0)]), Some(16));
        assert_eq!(at(&[(1, 500.0), (16, 940.0), (64, 1000.0)]), Some(64));
    }

    #[test]
    fn at_the_recommended_size_the_fastest_setting_is_taken() {
        let cpu = |precision, speed| setting(libtorch(Device::Cpu, precision), &[(16, speed)]);
        let both = [cpu(Precision::F32, 970.0), cpu(Precision::Bf16, 1000.0)];
        assert_eq!(recommended(&both).unwrap().per_second, 1000.0);
    }

    #[test]
    fn without_speeds_nothing_is_recommended() {
        assert_eq!(recommended(&[]), None);
        assert_eq!(recommended(&[setting(libtorch(Device::Cpu, Precision::F32), &[])]), None);
    }

    #[test]
    fn speed_ups_are_over_the_fastest_setting_of_the_cpu_at_the_same_size() {
        let mut settings = settings();
        add_speed_ups(&mut settings);
        let speed_ups = |index: usize| settings[index].speeds.iter().map(|speed| speed.speed_up).collect::<Vec<_>>();
        assert_eq!(speed_ups(0), [Some(0.05), Some(0.32)]);
        assert_eq!(speed_ups(1), [Some(1.0), Some(1.0)]);
        assert_eq!(speed_ups(3), [Some(0.05), Some(2.0), None]);
    }

    #[test]
    fn an_accelerator_wins_from_where_it_stays_ahead_of_the_cpu() {
        let from = |settings: &[SettingSpeeds]| {
            wins(settings).into_iter().map(|win| (win.device, win.from)).collect::<Vec<_>>()
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
        assert_eq!(wins(&[cpu(), both.to_vec()].concat()), [Win { device: "mps".to_owned(), from: Some(1) }]);
    }
}
