//! What to use, from what was measured.

use super::report::{Recommended, SettingReport, Speed, Win};

/// Share of the greatest speed that is as good: a larger size must gain more than turns differ by, because its answers come
/// later.
const AS_GOOD: f64 = 0.95;

/// Adds to every speed how many times it is that of the fastest setting of the CPU at the same size.
pub(super) fn add_speed_ups(settings: &mut [SettingReport]) {
    let cpu: Vec<SettingReport> = settings.iter().filter(|report| report.setting.is_cpu()).cloned().collect();
    for speed in settings.iter_mut().flat_map(|report| &mut report.speeds) {
        speed.speed_up = fastest(cpu.iter().filter_map(|report| report.at(speed.size))).map(|of| speed.per_second / of);
    }
}

/// The smallest size at which something is about as fast as anything is at any size; at this size, the fastest.
pub(super) fn recommended(settings: &[SettingReport]) -> Option<Recommended> {
    let most = fastest(settings.iter().flat_map(|report| &report.speeds))?;
    let all = settings.iter().flat_map(|report| report.speeds.iter().map(move |speed| (report, speed)));
    let as_good = all.filter(|(_, speed)| speed.per_second >= AS_GOOD * most);
    let (report, speed) =
        as_good.min_by(|(_, a), (_, b)| a.size.cmp(&b.size).then(b.per_second.total_cmp(&a.per_second)))?;
    let Speed { size, per_second, latency_us, .. } = *speed;
    Some(Recommended { setting: report.setting.clone(), size, per_second, latency_us })
}

/// From where on each accelerator is faster than the CPU, in the order in which they come.
pub(super) fn wins(settings: &[SettingReport]) -> Vec<Win> {
    let measured = settings.iter().filter(|report| !report.setting.is_cpu() && !report.speeds.is_empty());
    let mut devices: Vec<&str> = measured.map(|report| report.setting.device.as_str()).collect();
    devices.dedup();
    devices.into_iter().map(|device| Win { device: device.to_owned(), from: wins_from(settings, device) }).collect()
}

fn wins_from(settings: &[SettingReport], device: &str) -> Option<usize> {
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

/// The speed of the CPU at a size. Where it was left out for taking too long, the nearest smaller size stands for it: a CPU can
/// answer a large batch as several of those.
fn cpu_at_most(settings: &[SettingReport], size: usize) -> Option<f64> {
    let cpu = || settings.iter().filter(|report| report.setting.is_cpu()).flat_map(|report| &report.speeds);
    let nearest = cpu().map(|speed| speed.size).filter(|&measured| measured <= size).max()?;
    fastest(cpu().filter(|speed| speed.size == nearest))
}

fn fastest<'a>(speeds: impl Iterator<Item = &'a Speed>) -> Option<f64> {
    speeds.map(|speed| speed.per_second).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests;
