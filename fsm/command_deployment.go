package fsm

// deploymentRows returns the commands of deployments of models.
func deploymentRows() []*row {
	return []*row{
		command[ChangeDeployment]{
			number: 75, since: formatAccounts, onFullDisk: true, apply: (*state).changeDeployment,
			op: func(c ChangeDeployment) Op { return c.Op },
		}.row(),
		command[ScaleDeployment]{
			number: 76, since: formatAccounts, onFullDisk: true, apply: (*state).scaleDeployment,
			term: func(c ScaleDeployment) uint64 { return c.Term },
		}.row(),
		command[ResumeDeployment]{
			number: 77, since: formatAccounts, apply: (*state).resumeDeployment,
		}.row(),
		command[UpdateDeployment]{
			number: 103, since: formatUpdates, apply: (*state).updateDeployment,
			op: func(c UpdateDeployment) Op { return c.Op },
		}.row(),
		command[SurgeService]{
			number: 104, since: formatUpdates, apply: (*state).surgeService,
			term: func(c SurgeService) uint64 { return c.Term },
		}.row(),
	}
}
