// Package selection makes the decisions of a GPU selection: one piece of code
// executed on several GPU types, to recommend one of them. Candidates chooses
// the GPU types to try. Live.Stops names the sub-executions that need not go
// on. Judge compares the GPU types and recommends one. Package chart draws the
// comparison.
//
// It is not for placement or for state: the scheduler places sub-executions
// like any other execution, and the state machine keeps their records.
//
// Rules: everything here is a pure function of its arguments. Integers choose
// the recommendation, so that every node recommends the same. Floats only
// estimate: the progress rate, the noise between sub-executions and the
// confidence in the recommendation.
package selection
