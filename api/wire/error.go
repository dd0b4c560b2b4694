package wire

// Error is every failure that is not a malformed request.
type Error struct {
	Detail string `json:"detail"`
	Code   string `json:"code" doc:"Stable name of the case."`
}
