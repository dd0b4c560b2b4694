package api_test

import "testing"

// TestModelsNeedADeployment checks that anything but the identifier of a deployment is refused.
func TestModelsNeedADeployment(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	const path = "/admin/models/chat"
	for _, body := range []string{
		`{}`, `{"deployment_id":""}`, `{"deployment_id":"x"}`, `{"deployment_id":"zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz"}`,
	} {
		w.want(422, "", "PUT", path, w.adaKey, body)
	}
	w.want(404, "deployment_not_found", "PUT", path, w.adaKey, `{"deployment_id":"`+w.start("t4").String()+`"}`)
}
