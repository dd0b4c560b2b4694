package api

import (
	_ "embed"
	"net/http"

	"berth/api/edge"
	"berth/api/edge/answer"
)

// viewer serves the OpenAPI document, and shows it to people.
type viewer struct {
	// openapi returns the document. It is made when somebody asks: that takes more than all else
	// of a server's start.
	openapi func() ([]byte, error)
}

// redoc is bundles/redoc.standalone.js of the npm package redoc 2.5.4, compressed by
// gzip -9n (viewer/LICENSE).
//
//go:embed viewer/redoc.js.gz
var redoc []byte

// viewerPage shows the document of the node that serves it, without any other server.
const viewerPage = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Berth API</title><style>body{margin:0}</style></head>
<body>
<noscript>This page needs JavaScript. The document is <a href="/openapi.json">/openapi.json</a>.</noscript>
<redoc spec-url="/openapi.json" expand-responses="200" native-scrollbars></redoc>
<script src="/docs/redoc.js"></script>
</body>
</html>
`

// viewerPolicy allows the sources that the page needs: the script and the document of
// this node, styles that the script makes, drawings in them, and a worker for its
// search.
const viewerPolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; " +
	"img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Routes returns the routes of the group.
func (g *viewer) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: "/openapi.json", Local: true,
			Summary: "This API as OpenAPI 3.1.", Accepts: []string{"application/json"}, Handle: g.document,
		},
		{
			Method: http.MethodGet, Path: "/docs", Local: true,
			Summary: "This API for people, in a browser.", Accepts: []string{"text/html"}, Handle: g.page,
		},
		{
			Method: http.MethodGet, Path: "/docs/redoc.js", Local: true,
			Summary: "The program of /docs.", Accepts: []string{"text/javascript"}, Handle: g.script,
		},
	}
}

// page answers the page.
func (g *viewer) page(r *edge.Request) (any, error) {
	r.SetHeader("Content-Security-Policy", viewerPolicy)
	return answer.Text{ContentType: "text/html; charset=utf-8", Body: []byte(viewerPage), Shared: true}, nil
}

// script answers the program that shows the document. Every browser reads gzip.
func (g *viewer) script(r *edge.Request) (any, error) {
	r.SetHeader("Content-Encoding", "gzip")
	r.SetHeader("Cache-Control", "public, max-age=86400")
	return answer.Text{ContentType: "text/javascript; charset=utf-8", Body: redoc, Shared: true}, nil
}

// document answers the API as OpenAPI.
func (g *viewer) document(*edge.Request) (any, error) {
	document, err := g.openapi()
	return answer.Text{ContentType: "application/json", Body: document, Shared: true}, err
}
