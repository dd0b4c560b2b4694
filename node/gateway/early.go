package gateway

import (
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3err"
)

// trailers are the checksums that may follow a body.
var trailers = []string{ //nolint:gochecknoglobals // A table.
	"crc32", "crc32c", "crc64nvme", "sha1", "sha256", "sha512", "md5", "xxhash64", "xxhash3", "xxhash128",
}

// knownTrailer refuses a request that announces another trailer. The library answers that it has
// failed where it reads the body as a whole.
func knownTrailer(ctx fiber.Ctx) error {
	name := strings.ToLower(ctx.Get("X-Amz-Trailer"))
	if name == "" || slices.Contains(trailers, strings.TrimPrefix(name, "x-amz-checksum-")) {
		return ctx.Next()
	}
	return refuseEarly(ctx, s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported))
}

// plainVersion refuses a request for a version whose name no header can have: the library repeats
// the name in one.
func plainVersion(ctx fiber.Ctx) error {
	if strings.ContainsFunc(ctx.Query("versionId"), unicode.IsControl) {
		return refuseEarly(ctx, s3err.APIError{
			Code: "InvalidArgument", Description: "Invalid version id specified", HTTPStatusCode: http.StatusBadRequest,
		})
	}
	return ctx.Next()
}

// refuseEarly answers a request before anything reads its credentials.
func refuseEarly(ctx fiber.Ctx, err s3err.APIError) error {
	ctx.Set(fiber.HeaderContentType, fiber.MIMEApplicationXML)
	return ctx.Status(err.HTTPStatusCode).Send(err.XMLBody("", ""))
}
