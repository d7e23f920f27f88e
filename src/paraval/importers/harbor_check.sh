#!/bin/sh
# Runs the tests of a Harbor or Terminal-Bench task in its container, and prints its reward.
# Arguments: the time limit of the tests in seconds and, in check.yaml, the solution: `reference`
# runs the task's own solution first; with `empty`, the tests must fail.
limit=$1 solution=${2-}
fail() { echo "$*" >&2; exit 2; }

rm -rf /tests /solution /logs/verifier
mkdir -p /logs/verifier /logs/agent && mv .harbor/tests /tests || fail "cannot place /tests"
run_tests=/tests/test.sh
if [ -f .harbor/run-tests.sh ]; then
  mv .harbor/run-tests.sh /tests/run-tests.sh && run_tests=/tests/run-tests.sh
fi
if [ "$solution" = reference ]; then
  mv .harbor/solution /solution || fail "cannot place /solution"
  solve=/solution/solve.sh
  [ -f "$solve" ] || solve=/solution/solution.sh
  chmod +x "$solve" && "$solve" || echo "$solve ended with exit code $?" >&2
fi
rm -rf .harbor

chmod +x "$run_tests" || fail "there is no $run_tests"
TEST_DIR=/tests timeout "$limit" "$run_tests"
code=$?
case $code in 126 | 127) fail "$run_tests cannot be started" ;; esac
if [ "$run_tests" = /tests/run-tests.sh ]; then
  reward=$((code == 0))
elif [ "$code" = 124 ] || [ "$code" = 143 ]; then
  echo "the tests did not end within $limit s" >&2
  reward=0
elif [ -s /logs/verifier/reward.txt ]; then
  read -r reward </logs/verifier/reward.txt
elif [ -s /logs/verifier/reward.json ]; then
  reward=$(tr -d ' \n' </logs/verifier/reward.json | sed -n 's/.*"reward":\([-+.0-9eE]*\).*/\1/p')
fi
[ -n "$reward" ] || fail "the tests wrote no reward to /logs/verifier (exit code $code)"
case $reward in 1 | 1.0 | 1.00*) passed=1 ;; *) passed=0 ;; esac
if [ "$solution" = empty ]; then
  echo "without a solution, the reward is $reward"
  passed=$((!passed)) reward=$passed
fi
echo "$reward"
[ "$passed" = 1 ]
