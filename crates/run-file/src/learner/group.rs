use std::collections::BTreeSet;

use proto::learners::LEARNERS_MAX;
use service::security::is_off_loopback;
use service::{ConfigError, SecuritySection};
use transport::servers::Endpoints;

use super::{LearnerSection, parsed};

/// Returns the addresses of all learners in the group, sorted by index; empty if the learner trains alone.
///
/// # Errors
/// [`ConfigError`] names the invalid key.
pub(super) fn learners(section: &LearnerSection, security: &SecuritySection) -> Result<Vec<String>, ConfigError> {
    let LearnerSection { group, index, group_trusted, simulated_step_us, .. } = section;
    if group.is_empty() {
        return ConfigError::within("learner.index", *index, 0..=0).map(|_| Vec::new());
    }
    let learners: Vec<String> = group.split(',').map(|endpoint| endpoint.trim().to_owned()).collect();
    for endpoint in &learners {
        security.check_endpoint("learner.group", endpoint)?;
        parsed::<Endpoints>("learner.group", endpoint)?;
    }
    if learners.len() > LEARNERS_MAX {
        let reason = format!("lists {} learners, the limit is {LEARNERS_MAX}", learners.len());
        return Err(ConfigError::invalid("learner.group", reason));
    }
    if learners.iter().collect::<BTreeSet<_>>().len() < learners.len() {
        return Err(ConfigError::invalid("learner.group", "lists a learner twice"));
    }
    ConfigError::within("learner.index", *index, 0..=learners.len() - 1)?;
    if *simulated_step_us > 0 {
        let reason = "simulated steps have no gradients to share; leave learner.group out";
        return Err(ConfigError::invalid("learner.simulated_step_us", reason));
    }
    if let Some(endpoint) = learners.iter().find(|endpoint| !group_trusted && is_off_loopback(endpoint)) {
        let reason = format!(
            "is false, and gradients would be sent to {endpoint} unencrypted and without credentials; set it to true \
             if the network between the learners is private"
        );
        return Err(ConfigError::invalid("learner.group_trusted", reason));
    }
    Ok(learners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(group: &str, set: impl FnOnce(&mut LearnerSection)) -> Result<Vec<String>, String> {
        let mut section = LearnerSection { group: group.to_owned(), ..LearnerSection::default() };
        set(&mut section);
        learners(&section, &SecuritySection::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_group_is_a_list_of_different_endpoints_with_this_learner_among_them() {
        let two = "http://127.0.0.1:7002, http://127.0.0.1:7003";
        assert_eq!(of("", |_| {}), Ok(Vec::new()));
        let learners = ["http://127.0.0.1:7002".to_owned(), "http://127.0.0.1:7003".to_owned()];
        assert_eq!(of(two, |section| section.index = 1), Ok(learners.to_vec()));
        assert!(of("http://localhost:1,http://[::1]:1", |_| {}).is_ok());
        assert!(of("http://learner-0:1,http://learner-1:1", |section| section.group_trusted = true).is_ok());
        let many: Vec<String> =
            (0..=LEARNERS_MAX).map(|number| format!("http://127.0.0.1:{}", 7000 + number)).collect();
        for (refused, key, reason) in [
            (of(two, |section| section.index = 2), "learner.index", "from 0 to 1"),
            (of("", |section| section.index = 1), "learner.index", "from 0 to 0"),
            (of("127.0.0.1:7002", |_| {}), "learner.group", "http://host:port"),
            (of("http://a:1,http://a:1", |_| {}), "learner.group", "twice"),
            (of(&many.join(","), |_| {}), "learner.group", "the limit is 64"),
            (of(two, |section| section.simulated_step_us = 5), "learner.simulated_step_us", "learner.group"),
            (of("http://127.0.0.1:1,http://10.0.0.1:1", |_| {}), "learner.group_trusted", "10.0.0.1"),
            (of("http://localhost:1,http://learner-1:1", |_| {}), "learner.group_trusted", "learner-1"),
        ] {
            let error = refused.unwrap_err();
            assert!(error.contains(key) && error.contains(reason), "{error}");
        }
    }
}
