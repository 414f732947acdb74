use super::*;

#[test]
fn no_image_runs_as_root_or_needs_a_shell() {
    let system = system(SCRATCH);
    assert!(system.contains("\nUSER 10001:10001\n") && system.contains("\nSTOPSIGNAL SIGTERM\n"), "{system}");
    for process in &PROCESSES {
        for line in super::process(process, "zerofleet/system:dev").lines() {
            let command = ["CMD ", "ENTRYPOINT ", "HEALTHCHECK "].iter().any(|word| line.starts_with(word));
            assert!(!command || line.contains('['), "not run by a shell: {line}");
            assert!(!line.starts_with("RUN ") && !line.starts_with("USER "), "{line}");
        }
    }
}

#[test]
fn the_dockerfile_of_the_repository_has_the_same_lines() {
    let file = fs::read_to_string(crate::workspace::root().join("deploy/Dockerfile")).unwrap();
    let recipes = PROCESSES.iter().map(|process| super::process(process, "")).chain([system("debian")]);
    for recipe in recipes {
        let end: String = recipe.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert!(file.contains(&end), "deploy/Dockerfile has not:\n{end}");
    }
}

#[test]
fn a_code_change_ships_neither_the_system_nor_libtorch_again() {
    let recipe = super::process(&PROCESSES[1], "zerofleet/libtorch:dev");
    let copies: Vec<&str> = recipe.lines().filter(|line| line.starts_with("COPY")).collect();
    assert_eq!(copies, ["COPY learner /usr/local/bin/learner"]);
}
