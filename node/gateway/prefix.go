package gateway

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// Prefix is a first segment of paths that may be left out. Below it the API's port
// serves S3 too.
const Prefix = "/s3"

// signedPath is where versitygw keeps the path that the client signed, if that is not
// the one by which requests are routed: it does so for buckets in host names.
const signedPath = "original-uri-path"

// unprefixed has a request below Prefix served as if it were not, with the signature of
// what the client sent.
func unprefixed(ctx fiber.Ctx) error {
	sent := string(ctx.Request().URI().PathOriginal())
	rest, ok := strings.CutPrefix(sent, Prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return ctx.Next()
	}
	if plain, err := url.PathUnescape(sent); err == nil {
		ctx.Locals(signedPath, plain)
	}
	if rest == "" {
		rest = "/"
	}
	ctx.Path(rest)
	return ctx.Next()
}
