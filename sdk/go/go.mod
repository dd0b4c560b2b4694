module berth/sdk/go

go 1.26.0
