package wire

// PageQuery are the parameters of a list that has no others.
type PageQuery struct {
	Limit  int    `json:"limit" default:"1000" min:"1" max:"1000" doc:"Page size."`
	Cursor string `json:"cursor" maxlen:"200" doc:"The X-Next-Cursor of the page before; the first page when absent."`
}
