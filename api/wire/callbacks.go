package wire

import "berth/compute"

// CallbackBody is the body of a callback when an execution has ended.
type CallbackBody struct {
	Event             string               `json:"event"` // "execution." and the status.
	ExecutionID       compute.ExecutionID  `json:"execution_id"`
	ParentExecutionID *compute.ExecutionID `json:"parent_execution_id"`
	OrgID             compute.OrgID        `json:"org_id"`
	ExecutionType     compute.Kind         `json:"execution_type"`
	HardwareProfile   string               `json:"hardware_profile"`
	Status            compute.Status       `json:"status"`
	ReturnCode        *int                 `json:"return_code"`
	Errors            []string             `json:"errors"`
	CreatedAt         compute.Instant      `json:"created_at"`
	StartTime         *compute.Instant     `json:"start_time"`
	EndTime           *compute.Instant     `json:"end_time"`
	Billed            *compute.Credits     `json:"billed"`
	FileName          *string              `json:"file_name"`
	Name              *string              `json:"name"`
}

// Callback is one URL that is notified when an execution ends, in GET
// /execution/{id}/callbacks.
type Callback struct {
	WebhookID   string           `json:"webhook_id" doc:"The same on every try: receivers know repeats by it."`
	URL         string           `json:"url"`
	Status      string           `json:"status" enum:"pending,delivered,failed" doc:"failed: given up after 24 hours."`
	Tries       int              `json:"tries"`
	LastAt      *compute.Instant `json:"last_at" doc:"Time of the last try."`
	StatusCode  *int             `json:"status_code" doc:"The HTTP status of the last answer; null for none."`
	Error       *string          `json:"error" doc:"Why the last try failed."`
	NextAt      *compute.Instant `json:"next_at" doc:"Time of the next try; null when there is none."`
	DeliveredAt *compute.Instant `json:"delivered_at"`
}

// Redeliver is the body of POST /execution/{id}/callbacks/redeliver.
type Redeliver struct {
	WebhookID string `json:"webhook_id" maxlen:"64" doc:"Only this one; all when absent."`
}

// Redelivered answers it.
type Redelivered struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Count       int                 `json:"count" doc:"How many callbacks are sent again."`
	Message     string              `json:"message"`
}
