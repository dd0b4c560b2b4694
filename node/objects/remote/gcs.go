//go:build gcs

package remote

import _ "gocloud.dev/blob/gcsblob" // gs://, with 20 MB of the program, and gRPC.
