package api

// examples returns the bodies that the OpenAPI document shows, by the method and the
// path of their routes. Tests hold that each is accepted by its schema and its decoder.
func examples() map[string]string {
	return map[string]string{
		"POST /auth/signup": `{"email":"ada@example.com","password":"correct horse battery",` +
			`"org_name":"Ada's lab"}`,
		"POST /auth/login":             `{"email":"ada@example.com","password":"correct horse battery"}`,
		"POST /auth/refresh":           `{"refresh_token":"HkQ5n0mY2mN9cGm0zV1p8yqk3xq2m3l5uV0aXqk1r2s"}`,
		"POST /auth/logout":            `{"refresh_token":"HkQ5n0mY2mN9cGm0zV1p8yqk3xq2m3l5uV0aXqk1r2s"}`,
		"POST /auth/oidc/device":       `{}`,
		"POST /auth/oidc/token":        `{"device_code":"GmRhmhcxhwAzkoEqiMEg_DnyEysNkuNhszIySk9eS"}`,
		"POST /auth/api-keys":          `{"key_name":"laptop","expires_at":"2030-01-01T00:00:00Z"}`,
		"POST /auth/api-keys/validate": `{"api_key":"lk_7xQz0h3KfA"}`,
		"POST /user/password": `{"old_password":"correct horse battery",` +
			`"new_password":"staple horse battery"}`,
		"DELETE /user/delete":                  `{"password":"correct horse battery"}`,
		"POST /orgs":                           `{"name":"Vision lab","slug":"vision"}`,
		"PATCH /orgs/{slug}":                   `{"name":"Vision and language lab","billing_email":"billing@example.com"}`,
		"PATCH /orgs/{slug}/members/{user_id}": `{"role":"admin"}`,
		"POST /orgs/{slug}/invites":            `{"email":"bea@example.com","role":"member"}`,
		"POST /orgs/{slug}/api-keys":           `{"name":"ci","scopes":["executions:write"],"max_credits":20}`,
		"PUT /orgs/{slug}/budgets": `{"max_credits":500,"period":"month","enforce":true,` +
			`"callback_url":"https://example.com/budget"}`,
		"POST /execution/streaming/start": `{"code":"import torch\nprint(torch.cuda.get_device_name())",` +
			`"execution_type":"gpu.a100","timeout":600}`,
		"POST /execution/image/start": `{"docker_image_ref":"docker.io/library/python:3.13-slim",` +
			`"docker_run_cmd":["python","-c","print(6 * 7)"],"execution_type":"cpu"}`,
		"POST /execution/compose/start": `{"compose_file_code":"services:\n  job:\n    image: alpine:3.22\n    ` +
			`command: echo hello\n    networks: [closed]\nnetworks:\n  closed:\n    internal: true\n","execution_type":"cpu"}`,
		"POST /execution/compose/complete/{id}": `{"status":"completed","return_code":0,"output":"done"}`,
		"POST /execution/gpu_selection/start": `{"code":"import torch\nprint(torch.ones(4096, 4096, device='cuda').sum())",` +
			`"objective":"cheapest","repeats":2,"max_credits":5}`,
		"POST /execution/service/start": `{"command":["python","-m","http.server","8000"],"port":8000,` +
			`"replicas":2}`,
		"PATCH /inference/deployments/{id}": `{"vllm_args":"--max-model-len=8192","max_replicas":4}`,
		"POST /inference/create": `{"hf_model_id":"owner/name","gpu_type":"h100","target_rps":4,` +
			`"target_latency_p95_ms":800,"stabilisation_window":300,"max_replicas":4}`,
		"POST /services/{id}/scale":                `{"replicas":3}`,
		"POST /execution/{id}/callbacks/redeliver": `{}`,
		"POST /bundles": `{"files":[{"path":"train.py",` +
			`"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":0,"mode":420}]}`,
		"POST /environment-variables": `{"environment_variables":[{"name":"HF_TOKEN","value":"hf_x","is_secret":true}]}`,
		"POST /environments":          `{"name":"torch","requirements":"torch==2.9.0\nnumpy"}`,
		"POST /storage/uploads":       `{"key":"models/large.bin"}`,

		"POST /execution/{id}/outputs/store": `{"prefix":"runs/1/"}`,

		"POST /storage/uploads/{upload_id}/complete": `{"key":"models/large.bin",` +
			`"parts":[{"number":1,"etag":"f4c9385f1902f7334b00b9b4ecd164de"}]}`,

		"POST /storage/copy": `{"from":"runs/1/model.pt","to":"models/best.pt"}`,
		"POST /billing/checkout": `{"credits_amount":100,"success_url":"https://lab.example.com/paid",` +
			`"cancel_url":"https://lab.example.com/cancelled"}`,
		"POST /billing/webhook":      `{}`,
		"POST /billing/grant":        `{"org":"vision","credits":100,"reason":"new semester"}`,
		"POST /admin/users":          `{"email":"bea@example.com","org_slug":"vision","role":"member"}`,
		"PATCH /admin/users/{id}":    `{"reset_password":true}`,
		"PATCH /admin/orgs/{org}":    `{"trusted":true}`,
		"POST /admin/secrets/rotate": `{"org":"vision"}`,
		"POST /admin/quotas":         `{"org":"vision","max_concurrent":20}`,
		"PUT /admin/models/{id}": `{"deployment_id":"01981f6e-5d2a-7c3b-9e4f-0a1b2c3d4e5f",` +
			`"prompt_price":0.1,"completion_price":0.4}`,
		"PUT /admin/prices/{resource}": `{"price_per_hour":0.5}`,
		"PUT /admin/billing/mode":      `{"mode":"enforce"}`,
		"PUT /admin/storage/{org}":     `{"max_bytes":1000000000000,"max_files":1000000}`,
		"POST /admin/environments":     `{"name":"torch","requirements":"torch==2.9.0"}`,
		"POST /admin/join-tokens":      `{"role":"worker","uses":1}`,
		"POST /admin/nodes/{id}/drain": `{"deadline":600}`,
		"POST /admin/brake":            `{"share_percent":30}`,
		"POST /admin/raft/transfer":    `{}`,
		"POST /admin/whatif":           `{}`,
	}
}
